"""Find the files that an operation affects, and count their rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.base import FILE
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.queries import alias, column, count_rows, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import exp

    from deltasql.engine.base import Engine, Relation
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.operations.table_stage import TableStage

_COUNT = "__deltasql_count"


def logged_row_counts(files: pa.Table) -> list[int | None]:
    """Return the live rows of each listed file from its statistics; None without statistics."""
    deleted = [
        json.loads(text).get("cardinality", 0) if text else 0
        for text in files["deletion_vector"].to_pylist()
    ]
    return [
        None if records is None else records - count
        for records, count in zip(files["num_records"].to_pylist(), deleted, strict=True)
    ]


def live_row_counts(stage: TableStage, files: pa.Table) -> list[int]:
    """Return the live rows of each listed file; files without statistics are read and counted."""
    known = logged_row_counts(files)
    unknown = [index for index, count in enumerate(known) if count is None]
    counts: Mapping[int, int] = {}
    if unknown:
        scan = stage.engine.scan(stage.live(files.take(pa.array(unknown))), positions=True)
        scanned = count_rows_by_file(stage.engine, scan)
        counts = {index: scanned.get(number, 0) for number, index in enumerate(unknown)}
    return [counts[index] if count is None else count for index, count in enumerate(known)]


def count_rows_by_file(
    engine: Engine, rows: Relation, condition: exp.Expr | None = None
) -> dict[int, int]:
    """Count rows by the index of their file; with a condition, count only rows that meet it.

    `rows` is a scan with positions. The condition refers to this scan as `t`.
    """
    query = select(
        column(FILE),
        alias(count_rows(), _COUNT),
        source="t",
        where=None if condition is None else condition.copy(),
        group_by=[column(FILE)],
    )
    found = engine.collect(engine.query(query, t=rows))
    return dict(zip(found[FILE].to_pylist(), found[_COUNT].to_pylist(), strict=True))


def in_partitions(stage: TableStage, files: pa.Table, predicate: Predicate) -> pa.Table:
    """Return the files whose partition values meet the condition."""
    live = stage.live(files)
    values = {field.name: array for field, array in live.listed_values()}
    indexes = pa.array(range(len(files)), pa.int64())
    listed = stage.engine.rows(pa.table({**values, FILE: indexes}))
    query = select(column(FILE), source="t", where=condition_of(predicate, "t"))
    return files_at(
        files, stage.engine.collect(stage.engine.query(query, t=listed))[FILE].to_pylist()
    )


def files_at(files: pa.Table, indexes: Iterable[int]) -> pa.Table:
    """Return the listed files with these indexes, in the order of the list."""
    return files.take(pa.array(sorted(indexes), pa.int64()))
