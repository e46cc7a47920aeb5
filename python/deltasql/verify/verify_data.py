"""Verify data: check that every live file exists and matches the log.

A file that is missing or cannot be read is reported, and the other files are still checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.files.file_sizes import FileSizes
from deltasql.model.progress import Meter
from deltasql.operations.table_stage import adds_table_to_errors
from deltasql.verify.report import DataReport, Difference, Differences
from deltasql.verify.rows import compare_rows, read_rows_from_log
from deltasql.verify.statistics import (
    ROWS,
    DataToVerify,
    compare_statistics,
    measure_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine
    from deltasql.model.progress import OnProgress
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.verify.report import DataChecks
    from deltasql.verify.statistics import Measured

_NOT_READ = ("missing", "unreadable", "unchecked")
_MAX_PER_KIND = 1000  # differences of each kind in a report


@adds_table_to_errors
def verify_data(
    stage: TableStage,
    *,
    checks: DataChecks = "counts",
    on_progress: OnProgress | None = None,
) -> DataReport:
    """Compare the files of a transaction's table, including staged files, with the log.

    Rows are compared with the published log only if nothing is staged.
    """
    metadata, files = stage.metadata, stage.files()
    data = DataToVerify(stage.name, stage.location, metadata, files, stage.config, stage.engine)
    snapshot = stage.snapshot if stage.staged.is_empty else None
    return _verify(data, checks, snapshot, Meter(stage.name, on_progress))


def verify_snapshot(
    snapshot: Snapshot,
    engine: Engine,
    config: Config,
    *,
    checks: DataChecks = "counts",
    location: str | None = None,
    meter: Meter | None = None,
) -> DataReport:
    """Compare the files of a version, and their rows, with the log.

    `location` is the folder of the files and the log, if it is not the table's own location.
    """
    table, files = snapshot.table, snapshot.scan().arrow
    root = location or table.location
    data = DataToVerify(table.full_name, root, snapshot.metadata, files, config, engine)
    return _verify(data, checks, snapshot, meter)


def _verify(
    data: DataToVerify,
    checks: DataChecks,
    snapshot: Snapshot | None,
    meter: Meter | None = None,
) -> DataReport:
    found, files = Differences(_MAX_PER_KIND), data.files
    sizes = FileSizes(data.location, data.config.storage).of(files, meter)
    found.add_all(_compared_sizes(files, sizes))
    rows, compared_with, notes = None, None, []
    if checks != "files":
        present = [index for index, size in enumerate(sizes) if size is not None]
        measured = measure_files(data, present, meter)
        found.add_all(_unread(files["path"].to_pylist(), measured))
        found.add_all(compare_statistics(data, measured))
        rows = sum(facts[ROWS] for facts in measured.facts.values())
    if checks == "rows" and snapshot is not None:
        if any(found.counts[kind] for kind in _NOT_READ):
            notes.append("rows not compared, because not all files can be read")
        else:
            compared_with = _compare_rows(data, snapshot, found, notes)
    return DataReport(
        data.name,
        len(files),
        rows,
        found,
        version=None if snapshot is None else snapshot.version,
        checks=checks,
        engine=data.engine.name,
        bytes=pc.sum(files["size"]).as_py() or 0,
        compared_with=compared_with,
        notes=tuple(notes),
    )


def _compared_sizes(files: pa.Table, sizes: Sequence[int | None]) -> Iterator[Difference]:
    listed = zip(files["path"].to_pylist(), files["size"].to_pylist(), sizes, strict=True)
    for path, logged, size in listed:
        if size is None:
            yield Difference.of_data("missing", path)
        elif logged != size:
            yield Difference.of_data("size", path, log=logged, data=size)


def _unread(paths: Sequence[str], measured: Measured) -> Iterator[Difference]:
    for index, reason in measured.unreadable.items():
        yield Difference.of_data("unreadable", paths[index], data=reason)
    for index in measured.unchecked:
        yield Difference.of_data("unchecked", paths[index])


def _compare_rows(
    data: DataToVerify, snapshot: Snapshot, found: Differences, notes: list[str]
) -> str:
    engine = data.engine
    theirs = read_rows_from_log(snapshot, engine, data.config, data.location)
    names = [each.name for each in data.schema.fields]
    compare_rows(engine, data.scan(data.files), theirs.rows, names, found)
    if theirs.note is not None:
        notes.append(theirs.note)
    return theirs.source
