"""What the rows of files are, file by file, against what the statistics of the log tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE
from deltasql.exceptions import TxnLogError, UnsupportedFeatureError, redact
from deltasql.model.file_stats import read_stats
from deltasql.model.partition_values import nanoseconds
from deltasql.model.progress import Meter
from deltasql.model.schema.schema import NANOSECOND_TYPES, column_mapping_mode
from deltasql.operations.sql.types import column, identifier
from deltasql.operations.touched import file_rows
from deltasql.operations.verify.report import DataDifference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltasql.model.schema.schema import DataType, StructField
    from deltasql.operations.verify.checked_data import CheckedData

ROWS = "__deltasql_rows"
Facts = dict[str, Any]
_REAL = ("float", "double")
# Statistics keep milliseconds of a moment, and leave out what comes after them.
_MILLISECOND = timedelta(milliseconds=1)
# To find each unreadable file costs a few scans; where so many are, something else is wrong.
_MOST_UNREADABLE = 100
_TOGETHER = 5000  # files that one query reads


@dataclass(slots=True)
class Measured:
    """What was found, by the place of a file; why those that cannot be read cannot."""

    facts: dict[int, Facts] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    unchecked: list[int] = field(default_factory=list)


def measure(data: CheckedData, places: Sequence[int], meter: Meter | None = None) -> Measured:
    """Let the engine look at all rows of the files at some places."""
    found, counter = Measured(), meter or Meter()
    fields = measured_fields(data)
    counter.begin("reading data", "files", len(places))
    for first in range(0, len(places), _TOGETHER):
        some = places[first : first + _TOGETHER]
        _measure(data, some, fields, found)
        counter.step(len(some))
    return found


def compare_statistics(data: CheckedData, measured: Measured) -> Iterator[DataDifference]:
    """Compare what was measured with the statistics of each file."""
    fields, files = measured_fields(data), data.files
    for place, count in enumerate(file_rows(files)):
        found = measured.facts.get(place)
        if found is None:
            continue
        path = files["path"][place].as_py()
        if count is not None and count != found[ROWS]:
            yield DataDifference(path, "rows", None, count, found[ROWS])
        whole = not files["deletion_vector"][place].as_py()
        stats = files["stats"][place].as_py()
        yield from _compared(data, path, stats, fields, found, whole=whole)


def measured_fields(data: CheckedData) -> list[StructField]:
    """Return the columns that can have bounds, without those that no file holds."""
    partitions = set(data.metadata.partition_columns)
    return [
        each
        for each in data.schema.fields
        if each.name not in partitions and _reader(each) is not None
    ]


def _measure(
    data: CheckedData, places: Sequence[int], fields: Sequence[StructField], found: Measured
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


def _rows(data: CheckedData, files: pa.Table, fields: Sequence[StructField]) -> dict[int, Facts]:
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
    data: CheckedData,
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
        if most is not None and high is not None and _raised(most, each.type) < high:
            yield DataDifference(path, "max", each.name, most, high)


def _bound(told: Any, name: str, read: Callable[[Any], Any] | None) -> Any:
    value = told.get(name) if isinstance(told, dict) else None
    try:
        return None if value is None or read is None else read(value)
    except (ValueError, TypeError, InvalidOperation):  # years that Python does not have, perhaps
        return None


def _raised(bound: Any, kind: DataType) -> Any:
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


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _wall(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def _single(value: Any) -> float:
    # 1.1 in a text is another number than in four bytes.
    return float(pa.scalar(float(value), pa.float32()).as_py())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    "float": _single,
    "double": float,
    "date": date.fromisoformat,
    "timestamp": _moment,
    "timestamp_ntz": _wall,
    "timestamp_nanos": partial(nanoseconds, has_zone=True),
    "timestamp_nanos_ntz": partial(nanoseconds, has_zone=False),
    "string": _text,
}
