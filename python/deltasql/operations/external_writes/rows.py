"""Stage an UPDATE, DELETE or MERGE that another program has executed.

The program has read the table at one version and found the rows that change. Then it either wrote
new files that replace the files with these rows, or it marked these rows as deleted and wrote files
with only the new rows. It reports the files, the marked rows and the numbers of rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql._core import RowSet
from deltasql.engine.parquet.writer import logged_path
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.actions import AddCdcFile
from deltasql.operations.deletion_vectors import mark_deleted
from deltasql.operations.external_writes.files import add_actions, place_files, record_read
from deltasql.operations.rewrite import (
    files_at,
    logged_row_counts,
    record_earlier_changes,
    record_whole_files,
)
from deltasql.operations.table_stage import adds_table_to_errors
from deltasql.storage.location import address_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.model.actions import AddFile
    from deltasql.model.clock import Stopwatch
    from deltasql.operations.external_writes.files import WrittenFile
    from deltasql.operations.table_stage import TableStage

Metrics = dict[str, int]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows of the replaced files were copied, updated and deleted."""

    copied: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """The files and rows that the program wrote, replaced and read."""

    command: str
    """UPDATE, DELETE or MERGE."""
    folder: str
    files: Sequence[WrittenFile]
    replaced: Sequence[str]
    """The URLs of the files that new files replace."""
    marked: Mapping[str, bytes] = field(default_factory=dict)
    """The rows that were marked as deleted, as deletion vectors, by the URL of the file."""
    counts: RowCounts = RowCounts()
    rewrite_ms: int = 0
    reads: Sequence[str | None] = ()
    """The conditions of all scans of the table; None means a scan of the whole table.

    The first condition is that of the scan for the rows that change.
    """
    change_folder: str = ""
    change_data: Sequence[WrittenFile] = ()


@adds_table_to_errors
def stage_rows(
    stage: TableStage, written: RowsWritten, parameters: Mapping[str, str], clock: Stopwatch
) -> None:
    """Stage the new files, the removal of those that they replace, and the change data.

    `parameters` are the operation parameters of the commit. `clock` runs since the statement began
    to write.
    """
    files, *_ = [record_read(stage, condition) for condition in written.reads or (None,)]
    skipped = stage.count_files() - len(files)
    replaced = _listed_at(stage, files, written.replaced)
    added = add_actions(stage, written.folder, written.files)
    if written.change_data:
        if not stage.staged.cdc:
            record_earlier_changes(stage)
        stage.staged.cdc += _change_actions(stage, written)
    stage.add(added)
    stage.remove(replaced)
    if not written.change_data:  # a MERGE that only inserts
        record_whole_files(stage, stage.listed(added), "insert")
    emptied, vectors = _delete_marked_rows(stage, files, written.marked)
    metrics = _METRICS[written.command](written.counts, added, len(replaced) + emptied) | vectors
    total = clock.total_ms()
    if written.command == "MERGE":
        metrics["num_target_files_scanned"] = len(files)
        metrics["num_target_files_skipped_during_scan"] = skipped
    metrics["execution_time_ms"] = total
    metrics["scan_time_ms"] = max(0, total - written.rewrite_ms)
    if written.command != "UPDATE":
        metrics["rewrite_time_ms"] = written.rewrite_ms
    stage.set_commit_info(written.command, parameters, metrics)


def _delete_marked_rows(
    stage: TableStage, files: pa.Table, marked: Mapping[str, bytes]
) -> tuple[int, Metrics]:
    """Mark rows as deleted; remove files that have no rows left.

    Return the number of removed files, and the metrics of the deletion vectors.
    """
    listed = _listed_at(stage, files, list(marked))
    addresses = [address_url(file.address) for file in stage.live(listed).files]
    sets = {number: RowSet.decode(marked[url]) for number, url in enumerate(addresses)}
    left = logged_row_counts(listed)
    emptied = [number for number, rows in sets.items() if len(rows) == left[number]]
    stage.remove(files_at(listed, emptied))
    for number in emptied:
        del sets[number]
    return len(emptied), mark_deleted(stage, listed, sets) if sets else {}


def _change_actions(stage: TableStage, written: RowsWritten) -> list[AddCdcFile]:
    return [
        AddCdcFile(
            path=logged_path(each.name), partition_values=each.partition, size=each.info.size
        )
        for each in place_files(stage, written.change_folder, written.change_data)
    ]


def _listed_at(stage: TableStage, files: pa.Table, urls: Sequence[str]) -> pa.Table:
    """Return the listed files with these URLs."""
    wanted = set(urls)
    listed = stage.live(files).files
    found = [n for n, file in enumerate(listed) if address_url(file.address) in wanted]
    if len(found) < len(wanted):
        raise TxnLogEngineError(
            f"{stage.name} has no file {min(wanted)} in the version that was read", engine="spark"
        )
    return files.take(pa.array(found, pa.int64()))


def _delete_metrics(counts: RowCounts, added: Sequence[AddFile], removed: int) -> Metrics:
    return {
        "num_added_files": len(added),
        "num_removed_files": removed,
        "num_deleted_rows": counts.deleted,
        "num_copied_rows": counts.copied,
    }


def _update_metrics(counts: RowCounts, added: Sequence[AddFile], removed: int) -> Metrics:
    return {
        "num_added_files": len(added),
        "num_removed_files": removed,
        "num_updated_rows": counts.updated,
        "num_copied_rows": counts.copied,
    }


def _merge_metrics(counts: RowCounts, added: Sequence[AddFile], removed: int) -> Metrics:
    rows = sum(json.loads(each.stats or "{}")["numRecords"] for each in added)
    return {
        "num_target_rows_inserted": rows - counts.copied - counts.updated,
        "num_target_rows_updated": counts.updated,
        "num_target_rows_deleted": counts.deleted,
        "num_target_rows_copied": counts.copied,
        "num_output_rows": rows,
        "num_target_files_added": len(added),
        "num_target_files_removed": removed,
    }


_METRICS = {"DELETE": _delete_metrics, "UPDATE": _update_metrics, "MERGE": _merge_metrics}
