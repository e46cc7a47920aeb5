"""One data file: its rows, the rows that DuckDB matches, and its statistics."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from deltasql import _core
from deltasql.model.predicates.predicate import Predicate, parse_predicate
from deltasql.model.schema.schema import StructField, StructType

Row = dict[str, Any]

TYPES = {
    "i": ("integer", pa.int32()),
    "l": ("long", pa.int64()),
    "x": ("double", pa.float64()),
    "f": ("float", pa.float32()),
    "p": ("decimal(6,2)", pa.decimal128(6, 2)),
    "s": ("string", pa.string()),
    "d": ("date", pa.date32()),
    "t": ("timestamp_ntz", pa.timestamp("us")),
    "b": ("boolean", pa.bool_()),
    "k": ("string", pa.string()),
    "y": ("integer", pa.int32()),
}
PARTITIONS = ("k", "y")
SCHEMA = StructType(tuple(StructField(name, kinds[0]) for name, kinds in TYPES.items()))
ARROW = pa.schema([(name, kinds[1]) for name, kinds in TYPES.items()])

_DUCKDB = duckdb.connect()
DAY = date(2020, 1, 1)
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]

ROWS: list[Row] = [
    {
        "i": 5, "l": 100, "x": 1.0, "f": 0.5, "p": Decimal("1.50"), "s": "apple", "d": DAY,
        "t": datetime(2020, 1, 1, 12), "b": True, "k": "a", "y": 1,
    },
    {
        "i": 9, "l": 200, "x": 2.0, "f": 0.75, "p": Decimal("2.50"), "s": "banana",
        "d": DAY + timedelta(3), "t": datetime(2020, 1, 4, 12), "b": True, "k": "a", "y": 1,
    },
]  # fmt: skip


def matching_rows(conditions: list[str], rows: list[Row]) -> list[list[Row]]:
    """Return the rows that DuckDB matches for each condition; Spark spellings are translated."""
    own = [
        sql.replace("<=>", "IS NOT DISTINCT FROM").replace("TIMESTAMP_NTZ '", "TIMESTAMP '")
        for sql in conditions
    ]
    _DUCKDB.register("rows", pa.Table.from_pylist(rows, schema=ARROW))
    # The conditions are in SELECT: DuckDB would push parts of a WHERE clause down to Arrow, which
    # lacks some comparisons.
    matches = _DUCKDB.execute(f"SELECT {', '.join(f'({sql})' for sql in own)} FROM rows").fetchall()
    return [
        [row for row, match in zip(rows, matches, strict=True) if match[i]] for i in range(len(own))
    ]


def predicate(sql: str) -> Predicate:
    return parse_predicate(sql, SCHEMA, PARTITIONS)


def stats_json(rows: list[Row]) -> str:
    """Return the statistics of a file as Delta writers record them."""
    least: Row = {}
    most: Row = {}
    nulls: Row = {}
    for name in TYPES.keys() - set(PARTITIONS):
        present = [row[name] for row in rows if row[name] is not None]
        nulls[name] = len(rows) - len(present)
        finite = [v for v in present if not isinstance(v, float) or math.isfinite(v)]
        if finite and len(finite) == len([v for v in present if v == v]):
            least[name], most[name] = (_stat(pick(finite)) for pick in (min, max))
    return json.dumps(
        {"numRecords": len(rows), "minValues": least, "maxValues": most, "nullCount": nulls}
    )


def _stat(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def partition_json(rows: list[Row]) -> str:
    return json.dumps({n: None if rows[0][n] is None else str(rows[0][n]) for n in PARTITIONS})


def value_key(kind: str, value: Any) -> bytes | None:
    assert value is not None
    if isinstance(value, bool):
        return _core.encode_key(kind, str(value).lower())
    if isinstance(value, date):
        return _core.encode_key(kind, value.isoformat())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _core.encode_key(kind, str(value))


class Reference:
    """Evaluates the pruning tree on Python values, independently of the Rust code."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def may_match(self, node: dict[str, Any]) -> bool:
        op = node["op"]
        if op in ("and", "or"):
            return (all if op == "and" else any)(self.may_match(part) for part in node["args"])
        if "column" not in node:
            return op != "false"
        values = [row[node["column"][0]] for row in self.rows]
        present = [value for value in values if value is not None]
        if op == "is_null":
            return len(present) < len(values)
        if op == "is_not_null" or not present:
            return bool(present)
        return self._overlaps(node, present)

    def _overlaps(self, node: dict[str, Any], present: list[Any]) -> bool:
        op, kind = node["op"], node["type"]
        numbers = [v for v in present if not (isinstance(v, float) and math.isnan(v))]
        if not numbers:
            return True  # no minimum and maximum
        least, most = min(numbers), max(numbers)
        if op == "starts_with":
            prefix = node["value"]
            return bool(least <= prefix + chr(0x10FFFF) and most >= prefix)
        if op == "in":
            return any(least <= _read(kind, text) <= most for text in node["values"])
        if op == "between":
            return bool(least <= _read(kind, node["high"]) and most >= _read(kind, node["low"]))
        value = _read(kind, node["value"])
        floating = kind in ("double", "float")
        return bool(
            {
                "=": lambda: least <= value <= most,
                "<>": lambda: floating or not least == most == value,
                "<": lambda: least < value,
                "<=": lambda: least <= value,
                ">": lambda: floating or most > value,
                ">=": lambda: floating or most >= value,
            }[op]()
        )


def _read(kind: str, text: str) -> Any:
    if kind == "float":
        return _Single(float(text))
    if kind == "date":
        return date.fromisoformat(text)
    if kind == "timestamp_ntz":
        return datetime.fromisoformat(text)
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind == "double":
        return float(text)
    return text if kind == "string" else Decimal(text)


class _Single(float):
    """A literal compared with floats: equal to every value that rounds to the same float."""

    def __ge__(self, other: float) -> bool:
        return float(self) >= other or self._rounded() >= other

    def __le__(self, other: float) -> bool:
        return float(self) <= other or self._rounded() <= other

    def __gt__(self, other: float) -> bool:
        return float(self) > other or self._rounded() > other

    def _rounded(self) -> float:
        return float(pa.scalar(float(self), pa.float32()).as_py())
