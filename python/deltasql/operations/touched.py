"""Which files an operation touches, and how many rows of each."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.base import FILE
from deltasql.operations.sql.expressions import Flavour, Scope, parse_condition
from deltasql.operations.sql.queries import alias, count_rows, select
from deltasql.operations.sql.types import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import exp

    from deltasql.engine.base import Engine, Relation
    from deltasql.operations.target import TableStage

_COUNT = "__deltasql_count"


class Stopwatch:
    """Milliseconds since it was made, and since it was last asked."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def total_ms(self) -> int:
        return int((time.perf_counter() - self._start) * 1000)

    def lap_ms(self) -> int:
        before, self._last = self._last, time.perf_counter()
        return int((self._last - before) * 1000)


def file_rows(files: pa.Table) -> list[int | None]:
    """Return how many live rows each listed file has, as far as the log knows it."""
    deleted = [
        json.loads(text).get("cardinality", 0) if text else 0
        for text in files["deletion_vector"].to_pylist()
    ]
    return [
        None if records is None else records - gone
        for records, gone in zip(files["num_records"].to_pylist(), deleted, strict=True)
    ]


def counted_rows(target: TableStage, files: pa.Table) -> list[int]:
    """Return how many live rows each listed file has; one without statistics is counted."""
    known = file_rows(files)
    unknown = [place for place, count in enumerate(known) if count is None]
    counts: Mapping[int, int] = {}
    if unknown:
        scan = target.engine.scan(target.live(files.take(pa.array(unknown))), positions=True)
        by_place = rows_by_file(target.engine, scan)
        counts = {place: by_place.get(number, 0) for number, place in enumerate(unknown)}
    return [counts[place] if count is None else count for place, count in enumerate(known)]


def rows_by_file(
    engine: Engine, rows: Relation, condition: exp.Expr | None = None
) -> dict[int, int]:
    """Count rows with positions by file, those that meet a condition, which calls them `t`."""
    query = select(
        column(FILE),
        alias(count_rows(), _COUNT),
        source="t",
        where=None if condition is None else condition.copy(),
        group_by=[column(FILE)],
    )
    found = engine.collect(engine.query(query, t=rows))
    return dict(zip(found[FILE].to_pylist(), found[_COUNT].to_pylist(), strict=True))


def in_partitions(
    target: TableStage, files: pa.Table, predicate: str, flavour: Flavour = "datafusion"
) -> pa.Table:
    """Return the files whose partition values meet the condition exactly."""
    live = target.live(files)
    values = {field.name: array for field, array in live.listed_values()}
    places = pa.array(range(len(files)), pa.int64())
    listed = target.engine.rows(pa.table({**values, FILE: places}))
    condition = parse_condition(predicate, Scope.of(target.schema, "t"), flavour=flavour)
    query = select(column(FILE), source="t", where=condition)
    return chosen(
        files, target.engine.collect(target.engine.query(query, t=listed))[FILE].to_pylist()
    )


def chosen(files: pa.Table, places: Iterable[int]) -> pa.Table:
    """Return the listed files at some places, in their order."""
    return files.take(pa.array(sorted(places), pa.int64()))
