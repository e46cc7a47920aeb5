"""CLUSTER BY: which columns OPTIMIZE keeps the rows of a table together by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.model.clustering import (
    DOMAIN,
    FEATURE,
    clustered_by,
    clustering_domain,
    column_names,
    physical_paths,
)
from deltasql.model.protocol import with_features, writer_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.clustering import ColumnPath
    from deltasql.operations.target import TableStage
    from deltasql.snapshot.snapshot import Snapshot


def clustering_columns(snapshot: Snapshot) -> list[str]:
    """Return the columns that a table is clustered by; none for most tables."""
    if FEATURE not in writer_features(snapshot.protocol):
        return []
    return column_names(clustered_by(snapshot.domains().get(DOMAIN)), snapshot.metadata)


def cluster_by(target: TableStage, columns: Sequence[str]) -> None:
    """Stage what a table is clustered by from now on: other columns, or none."""
    if columns:
        paths = physical_paths(columns, target.metadata)
        target.staged.protocol = with_features(target.protocol, [FEATURE])
        _stage(target, paths)
    elif target.clustered_by():
        _stage(target, [])


def restore_clustering(target: TableStage, to: Snapshot) -> None:
    """Stage what an older version was clustered by."""
    if FEATURE in writer_features(target.protocol):
        wanted = clustered_by(to.domains().get(DOMAIN))
        if wanted != target.clustered_by():
            _stage(target, wanted)


def _stage(target: TableStage, paths: Sequence[ColumnPath]) -> None:
    others = [each for each in target.staged.domains if each.domain != DOMAIN]
    target.staged.domains[:] = [*others, clustering_domain(paths)]
