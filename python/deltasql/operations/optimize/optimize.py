"""OPTIMIZE: replace files by fewer, larger files. In a clustered table, rows are also sorted.

Appends do not sort rows. In a clustered table, OPTIMIZE rewrites files that are not clustered yet,
and clustered files that are small. It sets clusteringProvider on the files that it writes, so that
the next OPTIMIZE can skip large clustered files.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.model.clustering import logical_paths
from deltasql.operations.optimize.compaction import (
    have_many_deletions,
    plan_compaction,
    plan_purge,
    plan_rewrite,
    stage_bins,
)
from deltasql.operations.optimize.zorder import plan_z_order, rewrite_sorted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.progress import OnProgress
    from deltasql.operations.optimize.compaction import Compaction
    from deltasql.operations.table_stage import TableStage

    Rewrite = Callable[[TableStage, pa.Table, WriteOptions], list[AddFile]]
_PROVIDER = "deltasql"


def optimize(
    stage: TableStage,
    *,
    z_order: Sequence[str] | None = None,
    partition_filters: Sequence[Any] | None,
    target_size: int | None,
    options: WriteOptions | None,
    on_progress: OnProgress | None,
    dry_run: bool,
) -> dict[str, Any]:
    """Replace files by fewer, larger files; with `z_order`, sort the rows by these columns.

    Return metrics. With `dry_run`, stage nothing and return what would be rewritten.
    """
    make_plan = plan_optimize if z_order is None else partial(plan_z_order, columns=z_order)
    plan, rewrite = make_plan(stage, partition_filters=partition_filters, target_size=target_size)
    if dry_run:
        return plan.forecast()
    stage_bins(stage, plan, options=options, rewrite=rewrite, on_progress=on_progress)
    return plan.metrics()


def purge(
    stage: TableStage,
    *,
    partition_filters: Sequence[Any] | str | None,
    target_size: int | None,
    options: WriteOptions | None,
    on_progress: OnProgress | None,
    dry_run: bool,
) -> dict[str, Any]:
    """Rewrite the files with deletion vectors, so that no file has one; return metrics."""
    plan = plan_purge(stage, partition_filters=partition_filters, target_size=target_size)
    if dry_run:
        return plan.forecast()
    stage_bins(stage, plan, options=options, on_progress=on_progress)
    return plan.metrics()


def plan_optimize(
    stage: TableStage,
    *,
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
) -> tuple[Compaction, Rewrite | None]:
    """Plan to cluster the unclustered files of a table, and return the function to rewrite a bin.

    For a table without clustering columns, plan a compaction and return None as the function.
    """
    options: Any = {"partition_filters": partition_filters, "target_size": target_size}
    rewrite = clustering_rewrite(stage)
    if rewrite is None:
        return plan_compaction(stage, **options), None
    plan = plan_rewrite(stage, "zOrder", **options)
    plan.bins = [chosen for files in plan.bins if len(chosen := _unclustered(files, plan))]
    plan.partitions = len(plan.bins)
    return plan, rewrite


def clustering_rewrite(stage: TableStage) -> Rewrite | None:
    """Return the function that rewrites a bin of a clustered table; None for other tables."""
    physical = stage.clustered_by()
    if not physical:
        return None
    paths = logical_paths(physical, stage.metadata)

    def rewrite(stage: TableStage, files: pa.Table, options: WriteOptions) -> list[AddFile]:
        adds = rewrite_sorted(paths, stage, files, options)
        return [replace(each, clustering_provider=_PROVIDER) for each in adds]

    return rewrite


def _unclustered(files: pa.Table, plan: Compaction) -> pa.Table:
    """Return the files that are not clustered, are small, or have many deleted rows.

    A single small file is skipped if all files are clustered.
    """
    clustered = pc.equal(pc.coalesce(files["clustering_provider"], ""), _PROVIDER)
    done = pc.and_(clustered, pc.invert(pa.array(have_many_deletions(files), pa.bool_())))
    large = pc.greater_equal(files["size"], plan.target_size // 2)
    chosen = files.filter(pc.invert(pc.and_(done, large)))
    is_idle = pc.all(done).as_py() and len(chosen) == 1
    return chosen.slice(0, 0) if is_idle else chosen
