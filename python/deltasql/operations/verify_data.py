"""VERIFY of data: every live file is there and holds what the log tells of its rows.

The rows are counted and their bounds computed file by file, where the engine has them; only one
row per file comes back to be compared with the statistics of the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE
from deltasql.model.schema import column_mapping_mode
from deltasql.operations.presence import missing_files
from deltasql.operations.sql_types import column, identifier
from deltasql.operations.target import names_table
from deltasql.operations.touched import file_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltasql.model.schema import StructField
    from deltasql.operations.target import Target

_ROWS = "__deltasql_rows"
_REAL = ("float", "double")
_ORDERED = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string")
# Statistics keep milliseconds of a moment, and leave out what comes after them.
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DataDifference:
    """Something that the log tells of a file and that is not so."""

    path: str
    kind: str
    """`missing`, `rows`, `nulls`, `min` or `max`."""
    column: str | None = None
    told: object = None
    found: object = None

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.path}: the file or its deletion vector is gone"
        where = "" if self.column is None else f" of {self.column}"
        return (
            f"{self.path}: {self.kind}{where}: the log tells {self.told!r}, it has {self.found!r}"
        )


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a check of a table's data found."""

    table: str
    files: int
    rows: int
    differences: tuple[DataDifference, ...]

    @property
    def ok(self) -> bool:
        """Whether the data is what the log tells."""
        return not self.differences

    def __str__(self) -> str:
        head = f"{self.table}: {self.files} files, {self.rows} rows, "
        return "\n  ".join(
            [f"{head}{len(self.differences)} differences", *map(str, self.differences)]
        )


@names_table
def verify_data(target: Target) -> DataReport:
    """Compare the rows of every live file with what the log tells of them."""
    listed = target.files()
    gone = set(missing_files(target.location, listed, target.config.storage))
    there = listed.filter(pa.array([path not in gone for path in listed["path"].to_pylist()]))
    differences = [DataDifference(path, "missing") for path in sorted(gone)]
    fields = _fields(target)
    measured = _measured(target, there, fields) if len(there) else {}
    rows = 0
    counts = file_rows(there)
    facts = zip(there["path"].to_pylist(), there["stats"].to_pylist(), counts, strict=True)
    for place, (path, stats, count) in enumerate(facts):
        found = measured.get(place, {_ROWS: 0})
        rows += found[_ROWS]
        if count is not None and count != found[_ROWS]:
            differences.append(DataDifference(path, "rows", None, count, found[_ROWS]))
        whole = not there["deletion_vector"][place].as_py()
        differences += _compared(target, path, stats, fields, found, whole=whole)
    return DataReport(target.name, len(listed), rows, tuple(differences))


def _fields(target: Target) -> list[StructField]:
    """Return the columns that can have bounds, without those that no file holds."""
    partitions = set(target.partition_columns)
    return [
        field
        for field in target.schema.fields
        if field.name not in partitions and _reader(field) is not None
    ]


def _measured(
    target: Target, files: pa.Table, fields: Sequence[StructField]
) -> dict[int, dict[str, Any]]:
    """Let the engine look at all rows; return what it found by the place of the file."""
    measures: list[exp.Expr] = [exp.alias_(exp.Count(this=exp.Star()), identifier(_ROWS))]
    for number, field in enumerate(fields):
        value: exp.Expr = column(field.name)
        ordered = value
        if field.type in _REAL:  # engines do not agree where NaN is, and bounds leave it out
            is_nan = exp.IsNan(this=value.copy())
            ordered = exp.Case(ifs=[exp.If(this=exp.not_(is_nan), true=value.copy())])
        for name, measure in (
            ("count", exp.Count(this=value.copy())),
            ("min", exp.Min(this=ordered.copy())),
            ("max", exp.Max(this=ordered.copy())),
        ):
            measures.append(exp.alias_(measure, identifier(f"__deltasql_{name}_{number}")))
    query = exp.select(column(FILE), *measures).from_(exp.to_table("t")).group_by(column(FILE))
    engine = target.engine
    scan = engine.scan(target.live(files), positions=True)
    return {row[FILE]: row for row in engine.collect(engine.query(query, t=scan)).to_pylist()}


def _compared(
    target: Target,
    path: str,
    stats: str | None,
    fields: Sequence[StructField],
    found: dict[str, Any],
    *,
    whole: bool,
) -> Iterator[DataDifference]:
    """Compare bounds and nulls; of a file with deleted rows only the bounds must hold."""
    told = json.loads(stats, parse_float=Decimal) if stats else {}
    mode = column_mapping_mode(target.configuration)
    for number, field in enumerate(fields):
        name, read = field.physical_name(mode), _reader(field)
        count, low, high = (
            found.get(f"__deltasql_{each}_{number}") for each in ("count", "min", "max")
        )
        nulls = told.get("nullCount", {}).get(name)
        if whole and nulls is not None and count is not None and nulls != found[_ROWS] - count:
            yield DataDifference(path, "nulls", field.name, nulls, found[_ROWS] - count)
        least, most = (told.get(key, {}).get(name) for key in ("minValues", "maxValues"))
        assert read is not None
        if least is not None and low is not None and read(least) > low:
            yield DataDifference(path, "min", field.name, least, low)
        if most is not None and high is not None and _raised(read(most)) < high:
            yield DataDifference(path, "max", field.name, most, high)


def _raised(bound: Any) -> Any:
    return bound + _MILLISECOND if isinstance(bound, datetime) else bound


def _reader(field: StructField) -> Callable[[Any], Any] | None:
    """Return how a bound of a column is read from the statistics; None when it has none."""
    kind = field.type
    if not isinstance(kind, str):
        return None
    if kind in _REAL:
        return float
    if kind.startswith("decimal"):
        return Decimal
    if kind not in _ORDERED:
        return None
    return {"date": date.fromisoformat, "timestamp": _moment, "timestamp_ntz": _wall}.get(
        kind, lambda value: value
    )


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _wall(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)
