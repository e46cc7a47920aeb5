"""Predicates: the pruning trees that they parse to, and what is rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pytest

from deltasql import _core
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.predicate import Predicate, parse_predicate
from deltasql.model.schema.schema import ArrayType, MapType, StructField, StructType
from tests.each import check_each

COLUMNS: dict[str, Any] = {
    "n": "integer",
    "l": "long",
    "x": "double",
    "f": "float",
    "p": "decimal(10,2)",
    "s": "string",
    "d": "date",
    "t": "timestamp",
    "z": "timestamp_ntz",
    "b": "boolean",
    "bin": "binary",
    "Day": "date",
    "year": "integer",
    "m": MapType("string", "long"),
    "arr": ArrayType("long"),
    "st": StructType((StructField("A", "long"), StructField("b c", "string"))),
    "odd name.x": "long",
}
TABLE = StructType(
    (
        *(StructField(name, kind) for name, kind in COLUMNS.items()),
        StructField("code", "string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}),
        StructField("ci", "string", metadata={"__COLLATIONS": {"ci": "spark.UNICODE_CI"}}),
    )
)
PARTITIONS = ("Day", "year")
TRUE, FALSE, UNKNOWN = {"op": "true"}, {"op": "false"}, {"op": "unknown"}


def parse(predicate: object) -> Predicate:
    return parse_predicate(predicate, TABLE, PARTITIONS)


def leaf(op: str, column: str, **fields: Any) -> dict[str, Any]:
    return {"op": op, "column": [column], "type": COLUMNS[column], **fields}


TREES: list[tuple[str, dict[str, Any]]] = [
    ("n = 5", leaf("=", "n", value="5")),
    ("n == 5", leaf("=", "n", value="5")),
    ("5 < n", leaf(">", "n", value="5")),
    ("n <> -5", leaf("<>", "n", value="-5")),
    ("n != - (5)", leaf("<>", "n", value="-5")),
    ("N >= 5L", leaf(">=", "n", value="5")),
    ("n > 5.5", leaf(">=", "n", value="6")),
    ("n >= 5.5", leaf(">=", "n", value="6")),
    ("n < 5.5", leaf("<=", "n", value="5")),
    ("n < -5.5", leaf("<=", "n", value="-6")),
    ("n = 5.5", FALSE),
    ("n <> 5.5", leaf("is_not_null", "n")),
    ("n = 5.00", leaf("=", "n", value="5")),
    ("n < 3000000000", leaf("is_not_null", "n")),
    ("n > 3000000000", FALSE),
    ("n <= 2147483647", leaf("is_not_null", "n")),
    ("n > 2147483647", FALSE),
    ("n >= -2147483648", leaf("is_not_null", "n")),
    ("n = '7'", leaf("=", "n", value="7")),
    ("n = 'seven'", UNKNOWN),
    ("n = '7.5'", UNKNOWN),
    ("n = TRUE", UNKNOWN),
    ("l = 9007199254740993", leaf("=", "l", value="9007199254740993")),
    ("l = 9007199254740992e0", UNKNOWN),
    ("l < 2.5e0", leaf("<=", "l", value="2")),
    ("x = 1", leaf("=", "x", value="1.0")),
    ("x < 0.1", leaf("<", "x", value="0.1")),
    ("x = CAST('NaN' AS DOUBLE)", UNKNOWN),
    ("x < 1e400", UNKNOWN),
    ("p = 1.5", leaf("=", "p", value="1.50")),
    ("p > 1.005", leaf(">=", "p", value="1.01")),
    ("p = 1.005", FALSE),
    ("p < 100000000", leaf("is_not_null", "p")),
    ("p = 1.5e0", UNKNOWN),
    ("p = '1.5'", leaf("=", "p", value="1.50")),
    ("p = 1.5BD", leaf("=", "p", value="1.50")),
    ("s = 'it''s'", leaf("=", "s", value="it's")),
    (r"s = 'it\'s'", leaf("=", "s", value="it's")),
    ("s > 5", UNKNOWN),
    ("d = '2020-01-02'", leaf("=", "d", value="2020-01-02")),
    ("d = '2020-1-2'", leaf("=", "d", value="2020-01-02")),
    ("d = DATE '2020-01-02'", leaf("=", "d", value="2020-01-02")),
    ("CAST('2020-01-02' AS DATE) > d", leaf("<", "d", value="2020-01-02")),
    ("d = '2020-01-02 10:00:00'", UNKNOWN),
    ("d = '2020-02-31'", UNKNOWN),
    ("d < TIMESTAMP '2020-01-02 12:00:00'", leaf("<=", "d", value="2020-01-02")),
    ("d > TIMESTAMP '9999-12-31 12:00:00'", UNKNOWN),
    ("d = 5", UNKNOWN),
    ("t = '2020-01-02'", leaf("=", "t", value="2020-01-02T00:00:00.000000Z")),
    ("t = DATE '2020-01-02'", leaf("=", "t", value="2020-01-02T00:00:00.000000Z")),
    (
        "t > TIMESTAMP '2020-01-02 03:04:05.678901'",
        leaf(">", "t", value="2020-01-02T03:04:05.678901Z"),
    ),
    ("t > '2020-01-02T03:04:05Z'", leaf(">", "t", value="2020-01-02T03:04:05.000000Z")),
    ("t > '2020-01-02 00:30:00+02:00'", leaf(">", "t", value="2020-01-01T22:30:00.000000Z")),
    ("t > '2020-01-02 00:00:00.1234567'", UNKNOWN),
    ("t > '2020-01-02 00:00:00 Europe/Paris'", UNKNOWN),
    ("t > '0001-01-01 00:00:00+05:00'", UNKNOWN),
    ("z >= '2020-01-02 03:04'", leaf(">=", "z", value="2020-01-02T03:04:00.000000")),
    ("z >= '2020-01-02 03:04:00Z'", UNKNOWN),
    # Bounds of booleans are not trusted: only nulls are used.
    ("b", leaf("is_not_null", "b")),
    ("NOT b", leaf("is_not_null", "b")),
    ("b = FALSE", leaf("is_not_null", "b")),
    ("b IS TRUE", leaf("is_not_null", "b")),
    (
        "b IS NOT TRUE",
        {"op": "or", "args": [leaf("is_not_null", "b"), leaf("is_null", "b")]},
    ),
    ("bin = X'00'", UNKNOWN),
    ("bin IS NULL", leaf("is_null", "bin")),
    ("n IS NULL", leaf("is_null", "n")),
    ("n IS NOT NULL", leaf("is_not_null", "n")),
    ("NOT (n IS NULL)", leaf("is_not_null", "n")),
    ("st IS NULL", UNKNOWN),
    ("arr IS NULL", UNKNOWN),
    ("n = NULL", FALSE),
    ("NOT (n = NULL)", FALSE),
    ("NULL", FALSE),
    ("n <=> NULL", leaf("is_null", "n")),
    ("n <=> 5", leaf("=", "n", value="5")),
    (
        "NOT n <=> 5",
        {"op": "or", "args": [leaf("<>", "n", value="5"), leaf("is_null", "n")]},
    ),
    ("n IN (1, 2)", leaf("in", "n", values=["1", "2"])),
    ("n IN (1, NULL)", leaf("=", "n", value="1")),
    ("n IN (1.5, NULL)", FALSE),
    ("n IN (1, l)", UNKNOWN),
    ("n IN (SELECT 1)", UNKNOWN),
    ("n IN (1, '2')", UNKNOWN),
    ("n NOT IN (1, '2')", UNKNOWN),
    ("l IN (2.5e0, 3)", leaf("=", "l", value="3")),
    ("l IN (2.5e0, 9007199254740992)", UNKNOWN),
    ("l BETWEEN 1e0 AND 9007199254740992", leaf(">=", "l", value="1")),
    ("l IN (100000000000000000000, 0.0000000000000000001)", UNKNOWN),
    ("d BETWEEN '2020-01-01' AND TIMESTAMP '2020-01-02 10:00:00'", UNKNOWN),
    ("n NOT IN (1, NULL)", FALSE),
    (
        "n NOT IN (1, 2)",
        {"op": "and", "args": [leaf("<>", "n", value="1"), leaf("<>", "n", value="2")]},
    ),
    (
        "n BETWEEN 1 AND 5",
        {"op": "and", "args": [leaf(">=", "n", value="1"), leaf("<=", "n", value="5")]},
    ),
    (
        "n NOT BETWEEN 1 AND 5",
        {"op": "or", "args": [leaf("<", "n", value="1"), leaf(">", "n", value="5")]},
    ),
    ("n NOT BETWEEN NULL AND 5", leaf(">", "n", value="5")),
    ("x BETWEEN 1 AND 5", leaf("between", "x", low="1.0", high="5.0")),
    ("x > 1 AND 5 > x", leaf("between", "x", low="1.0", high="5.0")),
    ("x > 1", leaf(">", "x", value="1.0")),
    (
        "x > 1 AND (n = 3 AND x < 9) AND x >= 2 AND x < 8",
        {
            "op": "and",
            "args": [leaf("=", "n", value="3"), leaf("between", "x", low="2.0", high="8.0")],
        },
    ),
    (
        "x > 1 AND f < 5",
        {"op": "and", "args": [leaf(">", "x", value="1.0"), leaf("<", "f", value="5.0")]},
    ),
    ("s LIKE 'ab%'", leaf("starts_with", "s", value="ab")),
    ("s LIKE 'a_b%'", leaf("starts_with", "s", value="a")),
    ("s LIKE 'ab'", leaf("=", "s", value="ab")),
    ("s LIKE '%b'", leaf("is_not_null", "s")),
    (r"s LIKE 'a\\%b'", leaf("starts_with", "s", value="a")),
    ("s LIKE 'a!%b' ESCAPE '!'", leaf("starts_with", "s", value="a")),
    ("startswith(s, 'a_')", leaf("starts_with", "s", value="a_")),
    ("s NOT LIKE 'ab%'", UNKNOWN),
    ("NOT s LIKE 'ab%'", UNKNOWN),
    ("s ILIKE 'ab%'", UNKNOWN),
    ("n LIKE '1%'", UNKNOWN),
    ("code = 'ab'", UNKNOWN),
    ("code LIKE 'ab%'", UNKNOWN),
    ("ci > 'ab'", UNKNOWN),
    ("TRUE", TRUE),
    ("NOT TRUE", FALSE),
    ("n = l", UNKNOWN),
    ("n + 1 = 5", UNKNOWN),
    ("upper(s) = 'A'", UNKNOWN),
    ("m['k'] = 1", UNKNOWN),
    ("m.k = 1", UNKNOWN),
    ("arr[0] = 1", UNKNOWN),
    ("n::long = 5", UNKNOWN),
    ("exists(arr, e -> e > 1)", UNKNOWN),
    ("n = 5 AND upper(s) = 'A'", leaf("=", "n", value="5")),
    ("n = 5 OR upper(s) = 'A'", UNKNOWN),
    ("n = 5 OR FALSE", leaf("=", "n", value="5")),
    ("n = 5 AND FALSE", FALSE),
    (
        "NOT (n > 3 OR s = 'a')",
        {"op": "and", "args": [leaf("<=", "n", value="3"), leaf("<>", "s", value="a")]},
    ),
    ("`odd name.x` = 1", leaf("=", "odd name.x", value="1")),
    ('"odd name.x" = 1', leaf("=", "odd name.x", value="1")),
    ('s = "some text"', leaf("=", "s", value="some text")),
    ("st.a = 1", {"op": "=", "column": ["st", "A"], "type": "long", "value": "1"}),
    ("st.`B C` = 'x'", {"op": "=", "column": ["st", "b c"], "type": "string", "value": "x"}),
    ("day = '2020-01-02'", leaf("=", "Day", partition=True, value="2020-01-02")),
    ("n = 5;", leaf("=", "n", value="5")),
]


def test_sql_parses_to_the_pruning_tree() -> None:
    def check(case: tuple[str, dict[str, Any]]) -> None:
        assert parse(case[0]).tree == case[1]

    check_each(TREES, check, name=itemgetter(0))


def test_physical_names_are_used_with_column_mapping() -> None:
    column = StructField("n", "long", metadata={"delta.columnMapping.physicalName": "col-1"})
    day = StructField("day", "date", metadata={"delta.columnMapping.physicalName": "col-2"})
    schema = StructType((column, day))
    tree = parse_predicate("n = 1 AND day = '2020-01-01'", schema, ["day"], "name").tree
    assert [part["column"] for part in tree["args"]] == [["col-1"], ["col-2"]]
    assert tree["args"][1]["partition"] is True


@pytest.mark.parametrize(
    ("filters", "sql"),
    [
        ([("n", "=", 1), ("s", "==", "a")], "n = 1 AND s = 'a'"),
        ([[("n", "<", 1)], [("n", ">", 5), ("b", "=", True)]], "n < 1 OR (n > 5 AND b)"),
        ([("n", "in", [1, 2])], "n IN (1, 2)"),
        ([("n", "in", {3})], "n = 3"),
        ([("s", "not in", ("a", "b"))], "s NOT IN ('a', 'b')"),
        ([("s", "in", ["a", None])], "s = 'a' OR s IS NULL"),
        ([("s", "not in", ["a", None])], "s <> 'a' AND s IS NOT NULL"),
        ([("n", "is null")], "n IS NULL"),
        ([("n", "IS NOT NULL", None)], "n IS NOT NULL"),
        ([("n", "=", None)], "n IS NULL"),
        ([("n", "!=", None)], "n IS NOT NULL"),
        ([("n", "<", None)], "FALSE"),
        ([("Day", "=", "")], "Day IS NULL"),
        ([("Day", "!=", "")], "Day IS NOT NULL"),
        ([("s", "=", "")], "s = ''"),
        ([("year", "=", "2020")], "year = 2020"),
        ([("x", ">=", -1.5)], "x >= -1.5"),
        ([("p", "=", Decimal("1.50"))], "p = 1.5"),
        ([("d", "<=", date(2020, 1, 2))], "d <= DATE '2020-01-02'"),
        ([("t", ">", datetime(2020, 1, 2, 3, tzinfo=UTC))], "t > '2020-01-02T03:00:00Z'"),
        ([("z", ">", datetime(2020, 1, 2, 3))], "z > '2020-01-02 03:00:00'"),
        ([("x", "<", float("inf"))], "x < CAST('inf' AS DOUBLE)"),
        ([("st.A", "=", 1)], "st.A = 1"),
        ([("odd name.x", "=", 1)], "`odd name.x` = 1"),
        ([], "TRUE"),
    ],
)
def test_filter_lists_are_equivalent_to_their_sql(filters: Any, sql: str) -> None:
    parsed = parse(filters)
    assert parsed.tree == parse(sql).tree
    assert parse(parsed.sql).tree == parsed.tree


@pytest.mark.parametrize(
    "filters",
    [
        [("n", "~", 1)],
        [("n", "in", 1)],
        [("n", "in", "12")],
        [("n",)],
        [("n", "=")],
        [(1, "=", 1)],
        ["n = 1"],
        [("n", "=", object())],
        42,
    ],
)
def test_malformed_filters_are_rejected_with_help(filters: Any) -> None:
    with pytest.raises(TxnLogSchemaError) as raised:
        parse(filters)
    assert "Help:" in str(raised.value)


@pytest.mark.parametrize(
    ("predicate", "nearest"),
    [
        ("yaer = 5", "Did you mean 'year'"),
        ("upper(odd_name) = 'X'", "odd name.x"),
        ("st.aa = 1", "Did you mean 'A'"),
        ("`s.t` = 1", "Valid fields are n, l"),
        ([("yera", "=", 1)], "Did you mean 'year'"),
        ("n = 5 OR missing", "missing"),
    ],
)
def test_unknown_column_error_suggests_the_nearest_name(predicate: object, nearest: str) -> None:
    with pytest.raises(TxnLogSchemaError, match=nearest):
        parse(predicate)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "  ",
        "n =",
        "n = 1 AND",
        "SELECT 1",
        "n = 1; DROP TABLE t",
        "'open",
        "n n",
        "(n = 1",
        "*",
    ],
)
def test_text_that_is_not_a_condition_is_rejected(sql: str) -> None:
    with pytest.raises(TxnLogSchemaError) as raised:
        parse(sql)
    assert "Help:" in str(raised.value)


def test_parse_error_states_the_position() -> None:
    with pytest.raises(TxnLogSchemaError, match=r"found: AND in .*, line 2 column"):
        parse("n = 1\nAND AND n = 2")


@pytest.mark.parametrize(
    ("predicate", "columns", "partition_only"),
    [
        ("day = '2020-01-02' OR YEAR = 5", [("Day",), ("year",)], True),
        ("day = '2020-01-02' AND n = 5", [("Day",), ("n",)], False),
        ("year % 2 = 0", [("year",)], True),
        ("n = n AND st.a > n", [("n",), ("st", "A")], False),
        ("TRUE", [], True),
        ("rand() < 0.5", [], False),
        ("year IN (SELECT 1)", [("year",)], False),
        ("exists(arr, e -> e > year)", [("arr",), ("year",)], False),
        ("exists(array(year), e -> e > n AND e.x = 1)", [("year",), ("n",)], False),
    ],
)
def test_predicate_lists_its_columns(
    predicate: str, columns: list[tuple[str, ...]], partition_only: bool
) -> None:
    parsed = parse(predicate)
    assert [column.path for column in parsed.columns] == columns
    assert parsed.partition_only is partition_only


def key(data_type: str, text: str) -> bytes:
    encoded = _core.encode_key(data_type, text)
    assert encoded is not None
    return encoded


def bounds(sql: str) -> dict[tuple[str, ...], tuple[bytes, bytes]]:
    return {bound.path: (bound.low, bound.high) for bound in parse(sql).bounds()}


def test_bounds_are_one_range_per_data_column() -> None:
    assert bounds("n > 5 AND n <= 9 AND s LIKE 'ab%' AND year = 5 AND l IN (7, 3)") == {
        ("n",): (key("integer", "5"), key("integer", "9")),
        ("s",): (key("string", "ab"), key("string", "ab") + b"\xff"),
        ("l",): (key("long", "3"), key("long", "7")),
    }
    assert bounds("st.a = 4") == {("st", "A"): (key("long", "4"), key("long", "4"))}


@pytest.mark.parametrize(
    "sql", ["n = 5 OR s = 'a'", "n <> 5", "n IS NULL", "x > 5", "f >= 5", "year = 5", "TRUE"]
)
def test_conditions_that_are_not_ranges_give_no_bound(sql: str) -> None:
    assert bounds(sql) == {}


def test_float_literal_bounds_cover_float_and_double() -> None:
    low, high = bounds("f = 0.1")[("f",)]
    assert low <= min(key("float", "0.1"), key("double", "0.1"))
    assert high >= max(key("float", "0.1"), key("double", "0.1"))


def test_predicate_is_translated_to_the_sql_of_an_engine() -> None:
    parsed = parse("""`odd name.x` <=> 1 AND s = "te'xt" AND d < DATE '2020-01-01'""")
    duckdb = parsed.expression.sql("duckdb")
    assert duckdb == (
        "\"odd name.x\" IS NOT DISTINCT FROM 1 AND \"s\" = 'te''xt' "
        "AND \"d\" < CAST('2020-01-01' AS DATE)"
    )
    assert parse(parsed.expression.sql("spark")).tree == parsed.tree
