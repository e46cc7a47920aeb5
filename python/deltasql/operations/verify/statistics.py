"""Compare the rows of data files with the statistics in the log, file by file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE
from deltasql.engine.files.live_files import LiveFiles
from deltasql.exceptions import TxnLogError, UnsupportedFeatureError, redact
from deltasql.model.file_stats import read_stats
from deltasql.model.partition_values import nanoseconds
from deltasql.model.progress import Meter
from deltasql.model.schema.schema import NANOSECOND_TYPES, StructType, column_mapping_mode
from deltasql.operations.affected_files import logged_row_counts
from deltasql.operations.sql.queries import column, identifier
from deltasql.operations.verify.report import DataDifference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import DataType, StructField

ROWS = "__deltasql_rows"
Facts = dict[str, Any]
_REAL = ("float", "double")
# Statistics keep milliseconds of a moment, and leave out what comes after them.
_MILLISECOND = timedelta(milliseconds=1)
# To find each unreadable file costs a few scans; where so many are, something else is wrong.
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
    """What was found, by the place of a file; why those that cannot be read cannot."""

    facts: dict[int, Facts] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    unchecked: list[int] = field(default_factory=list)


def measure_files(
    data: DataToVerify, places: Sequence[int], meter: Meter | None = None
) -> Measured:
    """Let the engine look at all rows of the files at some places."""
    found, counter = Measured(), meter or Meter()
    fields = measured_fields(data)
    counter.begin("reading data", "files", len(places))
    for first in range(0, len(places), _TOGETHER):
        some = places[first : first + _TOGETHER]
        _measure(data, some, fields, found)
        counter.step(len(some))
    return found


def compare_statistics(data: DataToVerify, measured: Measured) -> Iterator[DataDifference]:
    """Compare what was measured with the statistics of each file."""
    fields, files = measured_fields(data), data.files
    for place, count in enumerate(logged_row_counts(files)):
        found = measured.facts.get(place)
        if found is None:
            continue
        path = files["path"][place].as_py()
        if count is not None and count != found[ROWS]:
            yield DataDifference(path, "rows", None, count, found[ROWS])
        whole = not files["deletion_vector"][place].as_py()
        stats = files["stats"][place].as_py()
        yield from _compared(data, path, stats, fields, found, whole=whole)


def measured_fields(data: DataToVerify) -> list[StructField]:
    """Return the columns that can have bounds, without those that no file holds."""
    partitions = set(data.metadata.partition_columns)
    return [
        each
        for each in data.schema.fields
        if each.name not in partitions and _reader(each) is not None
    ]


def _measure(
    data: DataToVerify, places: Sequence[int], fields: Sequence[StructField], found: Measured
) -> None:
    """Measure files together; when that fails, in halves, until those that fail are known."""
    try:
        rows = _rows(data, data.files.take(pa.array(places, pa.int64())), fields)
    except UnsupportedFeatureError:
        raise
    except (TxnLogError, OSError, pa.ArrowException) as error:
        if len(places) == 1:
            found.unreadable[places[0]] = _reason(error)
        elif len(found.unreadable) >= _MOST_UNREADABLE:
            found.unchecked += places
        else:
            middle = len(places) // 2
            _measure(data, places[:middle], fields, found)
            _measure(data, places[middle:], fields, found)
        return
    for number, place in enumerate(places):
        found.facts[place] = rows.get(number, {ROWS: 0})


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, TxnLogError) else str(error)
    return redact(text.partition("\n")[0])


def _rows(data: DataToVerify, files: pa.Table, fields: Sequence[StructField]) -> dict[int, Facts]:
    """Return one row for each file that has any, by the place of the file."""
    measures: list[exp.Expr] = [exp.alias_(exp.Count(this=exp.Star()), identifier(ROWS))]
    for number, each in enumerate(fields):
        value: exp.Expr = column(each.name)
        ordered = value
        if each.type in _REAL:  # engines do not agree where NaN is, and bounds leave it out
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
    # Python's own moments have no nanoseconds: they are compared as numbers.
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
    whole: bool,
) -> Iterator[DataDifference]:
    """Compare bounds and nulls; of a file with deleted rows only the bounds must hold."""
    told = read_stats(stats, Decimal)
    mode = column_mapping_mode(data.metadata.configuration)
    for number, each in enumerate(fields):
        name, read = each.physical_name(mode), _reader(each)
        count, low, high = (
            found.get(f"__deltasql_{kind}_{number}") for kind in ("count", "min", "max")
        )
        nulls = _bound(told.get("nullCount"), name, int)
        if whole and nulls is not None and count is not None and nulls != found[ROWS] - count:
            yield DataDifference(path, "nulls", each.name, nulls, found[ROWS] - count)
        least, most = (_bound(told.get(key), name, read) for key in ("minValues", "maxValues"))
        if least is not None and low is not None and least > low:
            yield DataDifference(path, "min", each.name, least, low)
        if most is not None and high is not None and _upper_limit(most, each.type) < high:
            yield DataDifference(path, "max", each.name, most, high)


def _bound(told: Any, name: str, read: Callable[[Any], Any] | None) -> Any:
    value = told.get(name) if isinstance(told, dict) else None
    try:
        return None if value is None or read is None else read(value)
    except (ValueError, TypeError, InvalidOperation):  # years that Python does not have, perhaps
        return None


def _upper_limit(bound: Any, kind: DataType) -> Any:
    if kind in NANOSECOND_TYPES:
        return bound + 1_000_000
    return bound + _MILLISECOND if isinstance(bound, datetime) else bound


def _reader(field: StructField) -> Callable[[Any], Any] | None:
    """Return how a bound of a column is read from the statistics; None when it has none."""
    kind = field.type
    if not isinstance(kind, str):
        return None
    if kind.startswith("decimal"):
        return Decimal
    return _READERS.get(kind)


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _timestamp_ntz(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def _float32(value: Any) -> float:
    # 1.1 in a text is another number than in four bytes.
    return float(pa.scalar(float(value), pa.float32()).as_py())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    "float": _float32,
    "double": float,
    "date": date.fromisoformat,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "timestamp_nanos": partial(nanoseconds, has_zone=True),
    "timestamp_nanos_ntz": partial(nanoseconds, has_zone=False),
    "string": _text,
}
