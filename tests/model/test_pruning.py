"""Pruning never drops rows that match: random predicates against DuckDB over the same rows."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql import _core
from deltasql.model.predicate import Predicate, parse_predicate
from deltasql.model.schema import StructField, StructType

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

DUCKDB = duckdb.connect()
DAY = date(2020, 1, 1)
single = st.sampled_from([0.1, 0.25, -1.5, 3.0, 16777216.0, 2.7, math.nan]).map(
    lambda number: pa.scalar(number, pa.float32()).as_py()
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-5, 5) | st.sampled_from([2**31 - 1, -(2**31)]),
    "l": st.integers(-5, 5) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "x": st.sampled_from([0.1, -0.0, 0.0, 1.5, -2.5, 1e300, math.nan, math.inf, -math.inf]),
    "f": single,
    "p": st.integers(-500, 500).map(lambda cents: Decimal(cents) / 100)
    | st.sampled_from([Decimal("9999.99"), Decimal("-9999.99")]),
    "s": st.text("ab'%_é\\", max_size=3),
    "d": st.integers(0, 6).map(lambda days: DAY + timedelta(days)),
    "t": st.integers(0, 6 * 86_400_000_000).map(
        lambda micros: datetime(2020, 1, 1) + timedelta(microseconds=micros)
    )
    | st.integers(0, 4).map(lambda days: datetime(2020, 1, 1) + timedelta(days)),
    "b": st.booleans(),
    "k": st.sampled_from(["a", "ab", "b", "é"]),
    "y": st.integers(-3, 3),
}
days = st.integers(0, 6).map(lambda n: str(DAY + timedelta(n)))
numbers = st.one_of(
    st.integers(-6, 6).map(str),
    st.decimals(-6, 6, places=1).map(str),
    st.decimals(-6, 6, places=3).map(str),
    st.sampled_from(["2147483647", "2147483648", "-99999999999", "2.5e0", "0.1", "2.7", "-1e0"]),
)
whole_texts = st.integers(-6, 6).map("'{}'".format)
texts = st.text("ab'é", max_size=3).map(lambda text: "'" + text.replace("'", "''") + "'")
moments = days.map("'{}'".format) | days.map("'{} 12:30:00.5'".format)
LITERALS = {
    "i": numbers | whole_texts,
    "l": numbers
    | st.sampled_from(["9007199254740993", "9007199254740992e0", "9223372036854775807"]),
    "x": numbers | st.sampled_from(["CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "1e300"]),
    "f": numbers | st.just("CAST(0.1 AS FLOAT)"),
    "p": numbers | st.sampled_from(["9999.99", "10000", "-9999.995"]),
    "s": texts,
    "d": days.map("'{}'".format)
    | days.map("DATE '{}'".format)
    | days.map("TIMESTAMP_NTZ '{} 12:00:00'".format),
    "t": moments
    | days.map("DATE '{}'".format)
    | days.map("TIMESTAMP_NTZ '{} 00:00:00.000001'".format),
    "b": st.sampled_from(["TRUE", "FALSE"]),
    "k": texts,
    "y": numbers,
}
MIRRORED = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def leaves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(TYPES)))
    literals = LITERALS[name] | st.just("NULL")
    form = draw(st.integers(0, 9))
    if form <= 2:
        return f"{name} {draw(st.sampled_from(MIRRORED))} {draw(literals)}"
    if form == 3:
        return f"{draw(literals)} {draw(st.sampled_from(MIRRORED))} {name}"
    if form == 4:
        members = ", ".join(draw(st.lists(literals, min_size=1, max_size=3)))
        return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({members})"
    if form == 5:
        low, high = draw(literals), draw(literals)
        return f"{name} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {low} AND {high}"
    if form == 6:
        return f"{name} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    if form == 7:
        return f"{name} <=> {draw(literals)}"
    if form == 8:
        pattern = draw(st.text("ab%_é", max_size=4))
        column, like = draw(st.sampled_from("sk")), draw(st.sampled_from(["LIKE", "NOT LIKE"]))
        return f"{column} {like} '{pattern}'"
    return draw(
        st.sampled_from(
            [
                "b",
                "b IS TRUE",
                "b IS NOT FALSE",
                "i = l",
                "y + 1 > 3",
                "TRUE",
                "length(s) = 2",
                "y < i",
            ]
        )
    )


predicates = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} AND {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)


@st.composite
def files(draw: st.DrawFn) -> list[Row]:
    """The rows of one file: partition values are the same in all of them."""
    nullable = {name: values | values | values | st.none() for name, values in VALUES.items()}
    partition = {name: draw(nullable[name]) for name in PARTITIONS}
    data = st.fixed_dictionaries({n: v for n, v in nullable.items() if n not in PARTITIONS})
    return [{**row, **partition} for row in draw(st.lists(data, min_size=1, max_size=8))]


class Reference:
    """The pruning tree evaluated on Python values; nothing in common with the Rust one."""

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
    """A literal next to floats: equal to all that rounds to the same float."""

    def __ge__(self, other: float) -> bool:
        return float(self) >= other or self._rounded() >= other

    def __le__(self, other: float) -> bool:
        return float(self) <= other or self._rounded() <= other

    def __gt__(self, other: float) -> bool:
        return float(self) > other or self._rounded() > other

    def _rounded(self) -> float:
        return float(pa.scalar(float(self), pa.float32()).as_py())


def matching_rows(sql: str, rows: list[Row]) -> list[Row]:
    """Ask DuckDB, in its own words for what only Spark spells so."""
    own = sql.replace("<=>", "IS NOT DISTINCT FROM").replace("TIMESTAMP_NTZ '", "TIMESTAMP '")
    DUCKDB.register("rows", pa.Table.from_pylist(rows, schema=ARROW))
    # Not in WHERE: DuckDB would hand parts of it to Arrow, which lacks some comparisons.
    answers = DUCKDB.execute(f"SELECT ({own}) FROM rows").fetchall()
    return [row for row, (answer,) in zip(rows, answers, strict=True) if answer]


def predicate(sql: str) -> Predicate:
    return parse_predicate(sql, SCHEMA, PARTITIONS)


def stats_json(rows: list[Row]) -> str:
    """The statistics of a file as Delta writers put them down."""
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


@settings(max_examples=400, deadline=None)
@given(predicates, files())
def test_a_file_with_a_matching_row_is_never_pruned(sql: str, rows: list[Row]) -> None:
    parsed = predicate(sql)
    rust = _core.Predicate(parsed.to_pruning_json())
    found = matching_rows(sql, rows)
    # A row alone is the file with the tightest statistics.
    for file in ([row] for row in found):
        assert Reference(file).may_match(parsed.tree), parsed.tree
        assert rust.may_match(stats_json(file), partition_json(file)), parsed.tree
    if found:
        assert Reference(rows).may_match(parsed.tree), parsed.tree
        assert rust.may_match(stats_json(rows), partition_json(rows)), parsed.tree
        assert rust.may_match(None, partition_json(rows))


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


ALL_VALUES: dict[str, list[Any]] = {
    "i": [None, *range(-3, 4), 2**31 - 1, -(2**31)],
    "l": [None, *range(-3, 4), 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "x": [None, -2.5, -0.0, 0.0, 0.1, 1.5, 2.5, 3.0, 1e300, math.nan, math.inf, -math.inf],
    "f": [None, *(pa.scalar(v, pa.float32()).as_py() for v in (0.1, 2.5, 2.7, -1.5, math.nan))],
    "p": [None, *(Decimal(text) for text in ("-2.50", "0.00", "1.00", "1.01", "2.50", "9999.99"))],
    "s": [None, "", "a", "ab", "aba", "b", "a_b", "a%", "é", "it's"],
    "d": [None, *(DAY + timedelta(n) for n in range(4))],
    "t": [None, *(datetime(2020, 1, 1 + n, 12 * n % 24, 0, 0, n) for n in range(4))],
    "b": [None, True, False],
    "k": [None, "a", "ab", "b", "é"],
    "y": [None, *range(-3, 4)],
}
SOME_NUMBERS = [
    *("-2.5", "-2", "0", "0.1", "1", "1.005", "1.01", "2.5", "2.50", "2.7", "3", "2.5e0"),
    *("3000000000", "-3000000000"),
]
SOME_DAYS = ["2019-12-31", "2020-01-01", "2020-01-02", "2020-01-03"]
SOME_LITERALS: dict[str, list[str]] = {
    "i": [*SOME_NUMBERS, "'2'", "2147483647"],
    "l": [*SOME_NUMBERS, "9007199254740992", "9007199254740992e0", "9223372036854775808"],
    "x": [*SOME_NUMBERS, "CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "1e300"],
    "f": [*SOME_NUMBERS, "CAST(0.1 AS FLOAT)", "0.10000000149011612"],
    "p": [n for n in SOME_NUMBERS if "e" not in n],
    "s": ["''", "'a'", "'ab'", "'it''s'", "'é'", "'zz'"],
    "d": [f"{kind}'{day}{time}'" for day in SOME_DAYS
          for kind, time in (("", ""), ("DATE ", ""), ("TIMESTAMP_NTZ ", " 12:00:00"))],
    "t": [f"{kind}'{day}{time}'" for day in SOME_DAYS
          for kind, time in (("", ""), ("DATE ", ""), ("", " 12:00:00.000001"))],
    "b": ["TRUE", "FALSE"],
    "k": ["''", "'a'", "'ab'", "'c'"],
    "y": SOME_NUMBERS,
}  # fmt: skip


def comparisons(name: str) -> list[str]:
    """Every form over every literal, and its negation."""
    literals = [*SOME_LITERALS[name], "NULL"]
    plain = [f"{name} IS NULL", f"{name} IS NOT NULL"]
    for literal in literals:
        plain += [f"{name} {op} {literal}" for op in (*MIRRORED, "<=>")]
        plain += [f"{literal} {op} {name}" for op in MIRRORED]
    for one, two in zip(literals, [*literals[3:], *literals[:3]], strict=True):
        plain += [f"{name} IN ({one}, {two})", f"{name} BETWEEN {one} AND {two}"]
        plain.append(f"{name} > {one} AND {name} <= {two}")
    if TYPES[name][0] == "string":
        plain += [f"{name} LIKE '{text}'" for text in ("a%", "a_", "a", "%b", "ab%a", "é%", "")]
    if name == "b":
        plain += ["b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS NOT FALSE"]
    return [text for sql in plain for text in (sql, f"NOT ({sql})")]


@pytest.mark.parametrize("name", TYPES)
def test_every_comparison_keeps_every_value_that_matches(name: str) -> None:
    rows = [{**ROWS[0], name: value} for value in ALL_VALUES[name]]
    for sql in comparisons(name):
        parsed = predicate(sql)
        rust = _core.Predicate(parsed.to_pruning_json())
        for row in matching_rows(sql, rows):
            assert Reference([row]).may_match(parsed.tree), (sql, row, parsed.tree)
            assert rust.may_match(stats_json([row]), partition_json([row])), (sql, row)
            for bound in parsed.bounds():
                key = _key(bound.type, row[name])
                assert key is None or bound.low <= key <= bound.high, (sql, row)


@settings(max_examples=200, deadline=None)
@given(predicates, files())
def test_a_file_with_a_matching_row_meets_every_bound(sql: str, rows: list[Row]) -> None:
    found = matching_rows(sql, rows)
    for bound in predicate(sql).bounds():
        for row in found:
            key = _key(bound.type, row[bound.path[0]])
            assert key is None or bound.low <= key <= bound.high


def _key(kind: str, value: Any) -> bytes | None:
    assert value is not None
    if isinstance(value, bool):
        return _core.encode_key(kind, str(value).lower())
    if isinstance(value, date):
        return _core.encode_key(kind, value.isoformat())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _core.encode_key(kind, str(value))


@pytest.mark.parametrize(
    "sql",
    [
        "i > 9",
        "i < 5",
        "i = 7.5",
        "i < 4.5",
        "i > 9.5",
        "9.5 < i",
        "i IN (1, 2, 20)",
        "i BETWEEN 10 AND 20",
        "i IS NULL",
        "i <=> NULL",
        "NOT (i >= 5)",
        "NOT (i < 10)",
        "i < 5 OR l > 200",
        "i = 7 AND l = 7",
        "upper(s) = 'X' AND i > 9",
        "l > 9999999999999999999",
        "x < 1",
        "x = 3",
        "x >= 3 AND x <= 4",
        "x BETWEEN 3 AND 4",
        "f < 0.4",
        "p > 2.50",
        "p >= 2.505",
        "p = 1.755 OR p < 1.5",
        "s > 'banana'",
        "s LIKE 'c%'",
        "s LIKE 'c_t'",
        "d > '2020-01-04'",
        "d < DATE '2020-01-01'",
        "t >= '2020-01-05'",
        "t < TIMESTAMP_NTZ '2020-01-01 12:00:00'",
        "NOT b",
        "b IS NOT TRUE",
        "k = 'b'",
        "k LIKE 'b%'",
        "k <> 'a'",
        "k IS NULL",
        "y NOT IN (1, 2)",
        "y = 1 AND i > 9",
        "FALSE",
        "i = NULL",
    ],
)
def test_a_file_that_cannot_match_is_pruned(sql: str) -> None:
    assert matching_rows(sql, ROWS) == []
    parsed = predicate(sql)
    assert not Reference(ROWS).may_match(parsed.tree)
    rust = _core.Predicate(parsed.to_pruning_json())
    assert not rust.may_match(stats_json(ROWS), partition_json(ROWS))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-8, 8),
    st.lists(st.integers(-5, 5), min_size=1, max_size=4),
    st.sampled_from(["=", "<", "<=", ">", ">="]),
)
def test_integers_are_pruned_exactly_when_no_value_in_their_span_fits(
    number: int, values: list[int], op: str
) -> None:
    span = range(min(values), max(values) + 1)
    fits = {
        "=": lambda v: v == number,
        "<": lambda v: v < number,
        "<=": lambda v: v <= number,
        ">": lambda v: v > number,
        ">=": lambda v: v >= number,
    }[op]
    rows = [{**ROWS[0], "i": value} for value in values]
    rust = _core.Predicate(predicate(f"i {op} {number}").to_pruning_json())
    assert rust.may_match(stats_json(rows), partition_json(rows)) == any(map(fits, span))
