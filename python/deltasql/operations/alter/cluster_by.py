"""ALTER TABLE CLUSTER BY: set the clustering columns of a table."""

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
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot


def clustering_columns(snapshot: Snapshot) -> list[str]:
    """Return the clustering columns of a table; empty if it has none."""
    if FEATURE not in writer_features(snapshot.protocol):
        return []
    return column_names(clustered_by(snapshot.domains().get(DOMAIN)), snapshot.metadata)


def cluster_by(stage: TableStage, columns: Sequence[str]) -> None:
    """Stage new clustering columns; an empty list removes them."""
    if columns:
        paths = physical_paths(columns, stage.metadata)
        stage.staged.protocol = with_features(stage.protocol, [FEATURE])
        _stage(stage, paths)
    elif stage.clustered_by():
        _stage(stage, [])


def restore_clustering(stage: TableStage, to: Snapshot) -> None:
    """Stage the clustering columns of an older version."""
    if FEATURE in writer_features(stage.protocol):
        wanted = clustered_by(to.domains().get(DOMAIN))
        if wanted != stage.clustered_by():
            _stage(stage, wanted)


def _stage(stage: TableStage, paths: Sequence[ColumnPath]) -> None:
    others = [each for each in stage.staged.domains if each.domain != DOMAIN]
    stage.staged.domains[:] = [*others, clustering_domain(paths)]
