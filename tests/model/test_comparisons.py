"""Every comparison of every type with difficult literals, checked value by value against DuckDB."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltasql import _core
from tests.model.oracle import (
    DAY,
    OPERATORS,
    ROWS,
    TYPES,
    Reference,
    matching_rows,
    partition_json,
    predicate,
    stats_json,
    value_key,
)

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
    """Return every comparison with every literal, and its negation."""
    literals = [*SOME_LITERALS[name], "NULL"]
    plain = [f"{name} IS NULL", f"{name} IS NOT NULL"]
    for literal in literals:
        plain += [f"{name} {op} {literal}" for op in (*OPERATORS, "<=>")]
        plain += [f"{literal} {op} {name}" for op in OPERATORS]
    for one, two in zip(literals, [*literals[3:], *literals[:3]], strict=True):
        plain += [f"{name} IN ({one}, {two})", f"{name} BETWEEN {one} AND {two}"]
        plain.append(f"{name} > {one} AND {name} <= {two}")
    if TYPES[name][0] == "string":
        plain += [f"{name} LIKE '{text}'" for text in ("a%", "a_", "a", "%b", "ab%a", "é%", "")]
    if name == "b":
        plain += ["b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS NOT FALSE"]
    return [text for sql in plain for text in (sql, f"NOT ({sql})")]


@pytest.mark.parametrize("name", TYPES)
def test_every_comparison_keeps_every_matching_value(name: str) -> None:
    rows = [{**ROWS[0], name: value} for value in ALL_VALUES[name]]
    conditions = comparisons(name)
    for sql, found in zip(conditions, matching_rows(conditions, rows), strict=True):
        parsed = predicate(sql)
        rust = _core.Predicate(parsed.to_pruning_json())
        for row in found:
            assert Reference([row]).may_match(parsed.tree), (sql, row, parsed.tree)
            assert rust.may_match(stats_json([row]), partition_json([row])), (sql, row)
            for bound in parsed.bounds():
                key = value_key(bound.type, row[name])
                assert key is None or bound.low <= key <= bound.high, (sql, row)
