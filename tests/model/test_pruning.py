"""Pruning never drops matching rows: random predicates are compared with DuckDB."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql import _core
from tests.each import check_each
from tests.model.oracle import (
    DAY,
    OPERATORS,
    PARTITIONS,
    ROWS,
    TYPES,
    Reference,
    Row,
    matching_rows,
    partition_json,
    predicate,
    stats_json,
    value_key,
)
from tests.selection import examples

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
timestamps = days.map("'{}'".format) | days.map("'{} 12:30:00.5'".format)
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
    "t": timestamps
    | days.map("DATE '{}'".format)
    | days.map("TIMESTAMP_NTZ '{} 00:00:00.000001'".format),
    "b": st.sampled_from(["TRUE", "FALSE"]),
    "k": texts,
    "y": numbers,
}


@st.composite
def leaves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(TYPES)))
    literals = LITERALS[name] | st.just("NULL")
    form = draw(st.integers(0, 9))
    if form <= 2:
        return f"{name} {draw(st.sampled_from(OPERATORS))} {draw(literals)}"
    if form == 3:
        return f"{draw(literals)} {draw(st.sampled_from(OPERATORS))} {name}"
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
    """Return the rows of one file, which all have the same partition values."""
    nullable = {name: values | values | values | st.none() for name, values in VALUES.items()}
    partition = {name: draw(nullable[name]) for name in PARTITIONS}
    data = st.fixed_dictionaries({n: v for n, v in nullable.items() if n not in PARTITIONS})
    return [{**row, **partition} for row in draw(st.lists(data, min_size=1, max_size=8))]


@settings(max_examples=examples(400), deadline=None)
@given(predicates, files())
def test_sql_predicate_never_prunes_a_matching_file(sql: str, rows: list[Row]) -> None:
    parsed = predicate(sql)
    rust = _core.Predicate(parsed.to_pruning_json())
    [found] = matching_rows([sql], rows)
    # A file of one row has the tightest statistics.
    for file in ([row] for row in found):
        assert Reference(file).may_match(parsed.tree), parsed.tree
        assert rust.may_match(stats_json(file), partition_json(file)), parsed.tree
    if found:
        assert Reference(rows).may_match(parsed.tree), parsed.tree
        assert rust.may_match(stats_json(rows), partition_json(rows)), parsed.tree
        assert rust.may_match(None, partition_json(rows))


@settings(max_examples=examples(200), deadline=None)
@given(predicates, files())
def test_file_with_a_matching_row_is_within_every_bound(sql: str, rows: list[Row]) -> None:
    [found] = matching_rows([sql], rows)
    for bound in predicate(sql).bounds():
        for row in found:
            key = value_key(bound.type, row[bound.path[0]])
            assert key is None or bound.low <= key <= bound.high


NO_MATCHES = [
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
    "k = 'b'",
    "k LIKE 'b%'",
    "k <> 'a'",
    "k IS NULL",
    "y NOT IN (1, 2)",
    "y = 1 AND i > 9",
    "FALSE",
    "i = NULL",
]


def test_sql_predicate_prunes_a_file_that_cannot_match() -> None:
    check_each(NO_MATCHES, check_pruned)


def check_pruned(sql: str) -> None:
    assert matching_rows([sql], ROWS) == [[]]
    parsed = predicate(sql)
    assert not Reference(ROWS).may_match(parsed.tree)
    rust = _core.Predicate(parsed.to_pruning_json())
    assert not rust.may_match(stats_json(ROWS), partition_json(ROWS))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(-8, 8),
    st.lists(st.integers(-5, 5), min_size=1, max_size=4),
    st.sampled_from(["=", "<", "<=", ">", ">="]),
)
def test_integers_are_pruned_exactly_when_no_value_in_the_range_matches(
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
