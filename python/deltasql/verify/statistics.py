"""Compare the rows of data files with the statistics in the log, file by file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE
from deltasql.engine.files.live_files import LiveFiles
from deltasql.exceptions import TxnLogError, UnsupportedFeatureError, redact
from deltasql.model.json_text import read_stats
from deltasql.model.progress import Meter
from deltasql.model.schema.schema import (
    NANOSECOND_TYPES,
    StructType,
    column_mapping_mode,
    has_order,
)
from deltasql.model.typed_stats import primitive_type, typed_value
from deltasql.operations.rewrite import logged_row_counts
from deltasql.operations.sql.queries import column, identifier
from deltasql.verify.report import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import DataType, StructField

ROWS = "__deltasql_rows"
Facts = dict[str, Any]
_REAL = ("float", "double")
# Timestamps in statistics are truncated to milliseconds.
_MILLISECOND = timedelta(milliseconds=1)
# Finding an unreadable file takes a few scans. After this many, the other files of a failed scan
# are reported as unchecked.
_MOST_UNREADABLE = 100
_TOGETHER = 5000  # files that one query reads


@dataclass(frozen=True, slots=True)
class DataToVerify:
    """The live files of one version, and the engine that reads them."""

    name: str
    location: str
    metadata: Metadata
    files: pa.Table
    """With the columns of `Scan.arrow`."""
    config: Config
    engine: Engine

    @property
    def schema(self) -> StructType:
        return StructType.from_json(self.metadata.schema_string)

    def scan(self, files: pa.Table, *, positions: bool = False) -> Relation:
        """Return the live rows of some of the files."""
        live = LiveFiles(self.location, self.metadata, files, self.config.storage)
        return self.engine.scan(live, positions=positions)


@dataclass(slots=True)
class Measured:
    """What the files contain, by file index, and why some files cannot be read."""

    facts: dict[int, Facts] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    unchecked: list[int] = field(default_factory=list)


def measure_files(
    data: DataToVerify, indexes: Sequence[int], meter: Meter | None = None
) -> Measured:
    """Compute row counts, null counts and bounds of the files at some indexes."""
    found, counter = Measured(), meter or Meter()
    fields = measured_fields(data)
    counter.begin("reading data", "files", len(indexes))
    for first in range(0, len(indexes), _TOGETHER):
        some = indexes[first : first + _TOGETHER]
        _measure(data, some, fields, found)
        counter.step(len(some))
    return found


def compare_statistics(data: DataToVerify, measured: Measured) -> Iterator[Difference]:
    """Compare the measured values with the statistics of each file in the log."""
    fields, files = measured_fields(data), data.files
    for index, count in enumerate(logged_row_counts(files)):
        found = measured.facts.get(index)
        if found is None:
            continue
        path = files["path"][index].as_py()
        if count is not None and count != found[ROWS]:
            yield Difference.of_data("rows", path, log=count, data=found[ROWS])
        no_deletes = not files["deletion_vector"][index].as_py()
        stats = files["stats"][index].as_py()
        yield from _compared(data, path, stats, fields, found, no_deletes=no_deletes)


def measured_fields(data: DataToVerify) -> list[StructField]:
    """Return the columns that can have bounds, without partition columns."""
    partitions = set(data.metadata.partition_columns)
    return [
        each for each in data.schema.fields if each.name not in partitions and has_order(each.type)
    ]


def _measure(
    data: DataToVerify, indexes: Sequence[int], fields: Sequence[StructField], found: Measured
) -> None:
    """Measure files together; after an error, in halves, until the unreadable files are found."""
    try:
        rows = _rows(data, data.files.take(pa.array(indexes, pa.int64())), fields)
    except UnsupportedFeatureError:
        raise
    except (TxnLogError, OSError, pa.ArrowException) as error:
        if len(indexes) == 1:
            found.unreadable[indexes[0]] = _reason(error)
        elif len(found.unreadable) >= _MOST_UNREADABLE:
            found.unchecked += indexes
        else:
            middle = len(indexes) // 2
            _measure(data, indexes[:middle], fields, found)
            _measure(data, indexes[middle:], fields, found)
        return
    for number, index in enumerate(indexes):
        found.facts[index] = rows.get(number, {ROWS: 0})


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, TxnLogError) else str(error)
    return redact(text.partition("\n")[0])


def _rows(data: DataToVerify, files: pa.Table, fields: Sequence[StructField]) -> dict[int, Facts]:
    """Return the measured values of each file that has rows, by its index in `files`."""
    measures: list[exp.Expr] = [exp.alias_(exp.Count(this=exp.Star()), identifier(ROWS))]
    for number, each in enumerate(fields):
        value: exp.Expr = column(each.name)
        ordered = value
        if each.type in _REAL:  # engines order NaN differently, and bounds ignore it
            is_nan = exp.IsNan(this=value.copy())
            ordered = exp.Case(ifs=[exp.If(this=exp.not_(is_nan), true=value.copy())])
        for name, measured in (
            ("count", exp.Count(this=value.copy())),
            ("min", exp.Min(this=ordered.copy())),
            ("max", exp.Max(this=ordered.copy())),
        ):
            measures.append(exp.alias_(measured, identifier(f"__deltasql_{name}_{number}")))
    query = exp.select(column(FILE), *measures).from_(exp.to_table("t")).group_by(column(FILE))
    engine = data.engine
    scan = data.scan(files, positions=True)
    found = engine.collect(engine.query(query, t=scan))
    # Python's datetime has no nanoseconds, so such timestamps are compared as numbers.
    counted = [
        each.with_type(pa.int64()) if each.type == pa.timestamp("ns") else each
        for each in found.schema
    ]
    return {row[FILE]: row for row in found.cast(pa.schema(counted)).to_pylist()}


def _compared(
    data: DataToVerify,
    path: str,
    stats: str | None,
    fields: Sequence[StructField],
    found: Facts,
    *,
    no_deletes: bool,
) -> Iterator[Difference]:
    """Compare bounds and null counts; if the file has deleted rows, only the bounds."""
    logged = read_stats(stats, Decimal)
    mode = column_mapping_mode(data.metadata.configuration)
    for number, each in enumerate(fields):
        name, kind = each.physical_name(mode), primitive_type(each.type)
        count, low, high = (
            found.get(f"__deltasql_{measure}_{number}") for measure in ("count", "min", "max")
        )
        nulls = _bound(logged.get("nullCount"), name, pa.int64())
        if no_deletes and nulls is not None and count is not None and nulls != found[ROWS] - count:
            yield Difference.of_data("nulls", path, each.name, log=nulls, data=found[ROWS] - count)
        least, most = (_bound(logged.get(key), name, kind) for key in ("minValues", "maxValues"))
        if least is not None and low is not None and least > low:
            yield Difference.of_data("min", path, each.name, log=least, data=low)
        if most is not None and high is not None and _upper_limit(most, each.type) < high:
            yield Difference.of_data("max", path, each.name, log=most, data=high)


def _bound(logged: Any, name: str, kind: pa.DataType) -> Any:
    """Return a value of the statistics; None if it is missing or does not match its type."""
    return typed_value(logged.get(name), kind) if isinstance(logged, dict) else None


def _upper_limit(bound: Any, kind: DataType) -> Any:
    if kind in NANOSECOND_TYPES:
        return bound + 1_000_000
    return bound + _MILLISECOND if isinstance(bound, datetime) else bound
