"""Compact small files into larger ones; the rows do not change."""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql import telemetry
from deltasql.engine.base import DEFAULT_FILE_SIZE, WriteOptions
from deltasql.model.progress import Meter
from deltasql.operations.rewrite import deleted_row_counts
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.table_stage import STAGED_VERSION, adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from deltasql.model.actions import AddFile
    from deltasql.model.progress import OnProgress
    from deltasql.operations.table_stage import TableStage

_log = logging.getLogger(__name__)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_LARGEST = 2**63 - 1
_FEW_DELETED = 0.05  # reading past this share of deleted rows costs less than a rewrite
# The compression that deltalake uses for OPTIMIZE.
_CODEC, _CODEC_LEVEL = "zstd", 4


@dataclass(slots=True)
class Compaction:
    """The plan and the progress of an OPTIMIZE: bins of files, each of one partition."""

    strategy: str
    target_size: int
    predicate: list[str]
    bins: list[pa.Table]
    considered: int
    added: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    rewritten: list[pa.Table] = field(default_factory=list)
    partitions: int = 0
    operation: str = "OPTIMIZE"
    """The operation that the commit records."""
    is_auto: bool = False
    """Whether auto compaction runs it, which the commit records, too."""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics that deltalake reports."""
        keeps_order = self.strategy != "zOrder"
        in_bins = [len(each) for each in (*self.bins, *self.rewritten)]
        return {
            "numFilesAdded": len(self.added),
            "numFilesRemoved": len(self.removed),
            "filesAdded": _sizes(self.added),
            "filesRemoved": _sizes(self.removed),
            "partitionsOptimized": self.partitions,
            "numBatches": len(self.removed) if keeps_order else len(self.added),
            "totalConsideredFiles": self.considered,
            "totalFilesSkipped": self.considered - sum(in_bins),
            "preserveInsertionOrder": keeps_order,
            "plannerStrategy": self.strategy,
            "preservedStableOrder": keeps_order,
            "maxBinSpanFiles": max(
                (len(each) for each in (*self.bins, *self.rewritten)), default=0
            ),
        }

    def forecast(self) -> dict[str, Any]:
        """Return the metrics of a dry run: what a rewrite of the remaining bins would remove."""
        return {
            "numFilesRemoved": sum(len(each) for each in self.bins),
            "bytesRemoved": sum(pc.sum(each["size"]).as_py() for each in self.bins),
            "partitionsOptimized": self.partitions,
            "totalConsideredFiles": self.considered,
            "targetSize": self.target_size,
        }


def plan_compaction(
    stage: TableStage,
    *,
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
) -> Compaction:
    """Plan a compaction: put the files of each partition into bins of about the target size.

    Files of at least the target size are skipped. A file that is alone in its bin is skipped, too.
    Files with many deleted rows are never skipped.
    """
    wanted = file_size(stage, target_size)
    files, predicate = _chosen(stage, partition_filters)
    return _binned(files, have_many_deletions(files), wanted, predicate, considered=len(files))


def plan_purge(
    stage: TableStage,
    *,
    partition_filters: Sequence[Any] | str | None = None,
    target_size: int | None = None,
) -> Compaction:
    """Plan to rewrite every file with a deletion vector, and no other file."""
    wanted = file_size(stage, target_size)
    files, predicate = _chosen(stage, partition_filters)
    marked = files.filter(pc.not_equal(pc.coalesce(files["deletion_vector"], ""), ""))
    plan = _binned(marked, [True] * len(marked), wanted, predicate, considered=len(files))
    plan.operation = "REORG"
    return plan


def plan_files(files: pa.Table, target_size: int) -> Compaction:
    """Plan to combine these files, which are all small, within their partitions."""
    return _binned(files, [False] * len(files), target_size, [], considered=len(files))


def have_many_deletions(files: pa.Table) -> list[bool]:
    """Return for each listed file whether more than 5 % of its rows are deleted."""
    counts = zip(files["num_records"].to_pylist(), deleted_row_counts(files), strict=True)
    return [deleted > _FEW_DELETED * (rows or 0) for rows, deleted in counts]


def plan_rewrite(
    stage: TableStage,
    strategy: str,
    *,
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
) -> Compaction:
    """Plan a rewrite of all files, with one bin for each partition."""
    files, predicate = _chosen(stage, partition_filters)
    bins = _taken(files, [*_by_partition(files)])
    plan = Compaction(strategy, file_size(stage, target_size), predicate, bins, len(files))
    plan.partitions = len(bins)
    return plan


@adds_table_to_errors
def stage_bins(
    stage: TableStage,
    plan: Compaction,
    *,
    options: WriteOptions | None = None,
    rewrite: Callable[[TableStage, pa.Table, WriteOptions], list[AddFile]] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
    on_progress: OnProgress | None = None,
) -> None:
    """Rewrite bins and stage the result, until no bin is left or `is_enough` returns True.

    If there are bins, at least one is rewritten. A plan can be executed by several commits; all of
    them must use the same snapshot of the table. `on_progress` is called with a `Progress` that
    counts bins.
    """
    written = rewrite_options(stage, options, plan.target_size)
    step = replace(plan, added=[], removed=[], rewritten=[])
    work = partial(rewrite or rewrite_rows, stage)
    total = len(plan.bins)
    meter = Meter(stage.name, on_progress)
    meter.begin("rewriting", "bins", total)
    while plan.bins:
        bins = plan.bins[: stage.engine.writes_at_once]
        del plan.bins[: len(bins)]
        for files in bins:
            stage.read(files=files)
        # After an error, wait until all writes have ended, so that their files can be deleted.
        with closing(_side_by_side(work, bins, written)) as done_bins:
            for files, adds in zip(bins, done_bins, strict=True):
                stage.remove(files, data_change=False)
                stage.add(adds)
                for each in (plan, step):
                    each.added += [add.size for add in adds]
                    each.removed += files["size"].to_pylist()
                    each.rewritten.append(files)
                meter.report("rewriting", "bins", len(step.rewritten), total)
        done = len(step.rewritten)
        telemetry.log(_log, logging.INFO, "bins rewritten", table=stage.name, done=done, of=total)
        if is_enough():
            break
    if step.rewritten:
        parameters = {
            "targetSize": str(plan.target_size),
            "predicate": json.dumps(plan.predicate, ensure_ascii=False),
        }
        if plan.is_auto:
            parameters["auto"] = "true"
        step.bins = plan.bins
        stage.set_commit_info(plan.operation, parameters, step.metrics())


def _side_by_side(
    work: Callable[[pa.Table, WriteOptions], list[AddFile]],
    bins: Sequence[pa.Table],
    options: WriteOptions,
) -> Generator[list[AddFile]]:
    """Rewrite bins in parallel and yield the new files in the order of the bins."""
    if len(bins) == 1:
        yield work(bins[0], options)
        return
    with ThreadPoolExecutor(len(bins), thread_name_prefix="deltasql-optimize") as pool:
        yield from pool.map(lambda files: work(files, options), bins)


def rewrite_rows(stage: TableStage, files: pa.Table, options: WriteOptions) -> list[AddFile]:
    """Write the live rows of files to new files, in the same order."""
    rows = scan_to_rewrite(stage, files)
    return stage.engine.write(rows, stage.plan(options, data_change=False, rewrites=True))


def rewrite_options(stage: TableStage, options: WriteOptions | None, size: int) -> WriteOptions:
    """Return the write options of rewritten files."""
    wanted = replace(options or WriteOptions(), target_file_size=size, keeps_order=True)
    if wanted.compression is None and "delta.parquet.compression.codec" not in stage.configuration:
        return replace(wanted, compression=_CODEC, compression_level=_CODEC_LEVEL)
    return wanted


def file_size(stage: TableStage, requested: int | None) -> int:
    """Return the target file size in bytes.

    This is the requested size, otherwise the table property, otherwise the default.
    """
    if requested is not None:
        if requested < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if not 1 <= requested <= _LARGEST:
            raise ValueError(f"target_file_size must be between 1 and {_LARGEST}")
        return requested
    return wanted_file_size(stage.configuration)


def wanted_file_size(configuration: Mapping[str, str]) -> int:
    """Return the target file size in bytes from the table property, or the default.

    A live file below this size is a small file: OPTIMIZE compacts such files, and `stats`,
    `doctor` and the console count them.

    >>> wanted_file_size({"delta.targetFileSize": "32mb"}), wanted_file_size({})
    (33554432, 104857600)
    """
    text = configuration.get("delta.targetFileSize")
    found = _SIZE.fullmatch(text.strip()) if text else None
    if found is None:
        return DEFAULT_FILE_SIZE
    thousands: int = 1024 ** " kmgt".index(found[2].lower() or " ")
    return int(found[1]) * thousands


def _chosen(stage: TableStage, filters: Sequence[Any] | str | None) -> tuple[pa.Table, list[str]]:
    """Return the files that the filters select, and the filters as strings for the commitInfo.

    Files that this transaction added are omitted: after a rewrite, their rows would not count as
    new data.
    """
    predicate = None
    if isinstance(filters, str):
        predicate, texts = stage.predicate(filters), [filters]
    else:
        if filters:
            predicate = stage.predicate(list(filters))
        texts = [stage.predicate([each]).sql.replace("`", "") for each in filters or ()]
    files = stage.files(predicate)
    return files.filter(pc.not_equal(files["added_version"], STAGED_VERSION)), texts


def _by_partition(files: pa.Table) -> Iterable[list[int]]:
    """Return the file indexes of each partition, in the order of the table."""
    indexes: dict[str, list[int]] = defaultdict(list)
    for index, partition in enumerate(files["partition"].to_pylist()):
        indexes[partition].append(index)
    return indexes.values()


def _taken(files: pa.Table, indexes: Sequence[list[int]]) -> list[pa.Table]:
    """Return the files of each bin.

    There can be very many bins, so this calls `take` once for all bins and slices the result.
    """
    taken = files.take(pa.array([index for each in indexes for index in each], pa.int64()))
    starts = accumulate((len(each) for each in indexes), initial=0)
    return [taken.slice(start, len(each)) for start, each in zip(starts, indexes, strict=False)]


def _binned(
    files: pa.Table,
    required: Sequence[bool],
    wanted: int,
    predicate: list[str],
    *,
    considered: int,
) -> Compaction:
    """Return the plan to put files into bins of about the size `wanted`.

    `required` says for each file whether it must be rewritten.
    """
    sizes = files["size"].to_pylist()
    indexes = [
        each for inside in _by_partition(files) for each in _bins(sizes, required, inside, wanted)
    ]
    bins = _taken(files, indexes)
    plan = Compaction("preserveLocality", wanted, predicate, bins, considered)
    plan.partitions = len({each["partition"][0].as_py() for each in bins})
    return plan


def _bins(
    sizes: Sequence[int], required: Sequence[bool], indexes: Sequence[int], wanted: int
) -> list[list[int]]:
    """Fill one bin after the other, so that adjacent files stay together."""
    bins: list[list[int]] = []
    filled = 0
    for index in indexes:
        if sizes[index] >= wanted and not required[index]:
            continue
        if not bins or filled + sizes[index] > wanted:
            bins.append([])
            filled = 0
        bins[-1].append(index)
        filled += sizes[index]
    return [each for each in bins if len(each) > 1 or required[each[0]]]


def _sizes(sizes: Sequence[int]) -> str:
    total = sum(sizes)
    facts = {
        "avg": total / len(sizes) if sizes else 0.0,
        "max": max(sizes, default=0),
        "min": min(sizes, default=0),
        "totalFiles": len(sizes),
        "totalSize": total,
    }
    return json.dumps(facts, separators=(",", ":"))
