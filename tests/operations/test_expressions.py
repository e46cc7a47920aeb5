"""SQL expressions of users: case-insensitive names, both dialects, UTC timestamps, exact casts."""

from __future__ import annotations

import pytest

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.parser import Flavour, Scope
from deltasql.model.schema.schema import ArrayType, MapType, StructField, StructType
from deltasql.operations.sql.assignments import conformed
from deltasql.operations.sql.expressions import assigned_column, scalar
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.types import cast_to

POINT = StructType((StructField("X", "long"), StructField("y", "double")))
TABLE = StructType(
    (
        StructField("Id", "long"),
        StructField("name", "string"),
        StructField("at", "timestamp"),
        StructField("local", "timestamp_ntz"),
        StructField("day", "date"),
        StructField("point", POINT),
        StructField("props", MapType("string", "long")),
        StructField("items", ArrayType("long")),
        StructField("my col", "long"),
    )
)


def duckdb(text: str, flavour: Flavour = "datafusion") -> str:
    return scalar(text, TABLE, flavour=flavour).sql(dialect="duckdb")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID = 1", '"Id" = 1'),
        ("`my col` + 1", '"my col" + 1'),
        ('"name" = "x"', "\"name\" = 'x'"),
        ("name = 'it''s'", "\"name\" = 'it''s'"),
        ("point.x", '"point"."X"'),
        ("props.k", "\"props\"['k']"),
        (r"name LIKE 'a\_%'", '"name" ' r"LIKE 'a\_%' ESCAPE '\'"),
        ("CAST(name AS INT)", 'CAST("name" AS INT)'),
        ("try_cast(name AS INT)", 'TRY_CAST("name" AS INT)'),
        ("at >= '2024-05-01'", "\"at\" >= CAST('2024-05-01T00:00:00Z' AS TIMESTAMPTZ)"),
        ("at = '2024-05-01T10:00:00+02:00'", "\"at\" = '2024-05-01T10:00:00+02:00'"),
        ("local = '2024-05-01 10:00:00'", "\"local\" = '2024-05-01 10:00:00'"),
        ("name = '2024-05-01'", "\"name\" = '2024-05-01'"),
        ("make_array(1, 2)", "[1, 2]"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_expression_is_translated_to_duckdb(text: str, expected: str) -> None:
    assert duckdb(text) == expected


@pytest.mark.parametrize(
    ("text", "datafusion", "spark"),
    [
        ("id / 2", 'CAST(TRUNC("Id" / 2) AS BIGINT)', '"Id" / NULLIF(2, 0)'),
        ("items[1]", '"items"[1]', '"items"[2]'),
        ("concat(name, 'x')", "CONCAT(\"name\", 'x')", "\"name\" || 'x'"),
        (r"name = 'C:\\n'", "\"name\" = 'C:\\\\n'", "\"name\" = 'C:\\n'"),
        (r"name = 'C:\n'", "\"name\" = 'C:\\n'", "\"name\" = 'C:\n'"),
    ],
)
def test_datafusion_and_spark_expressions_keep_their_semantics(
    text: str, datafusion: str, spark: str
) -> None:
    assert duckdb(text) == datafusion
    assert duckdb(text, "spark") == spark


def test_error_for_unknown_column_suggests_the_nearest() -> None:
    with pytest.raises(TxnLogSchemaError, match="No field named nmae") as caught:
        scalar("nmae = 'x'", TABLE)
    assert "Did you mean 'name'?" in caught.value.message


@pytest.mark.parametrize("text", ["id = = 2", "id = 1; DROP TABLE t", "SELECT 1", "id AS x"])
def test_text_that_is_not_one_expression_is_rejected(text: str) -> None:
    with pytest.raises(TxnLogSchemaError):
        scalar(text, TABLE)


def test_alias_selects_source_or_target() -> None:
    source = StructType((StructField("id", "long"), StructField("s", "long")))
    both = Scope({"t": TABLE, "s": source}, {"target": "t", "s": "s"})
    assert scalar("TARGET.id = s.id AND s.s > 1", both).sql(dialect="spark") == (
        "`t`.`Id` = `s`.`id` AND `s`.`s` > 1"
    )
    with pytest.raises(TxnLogSchemaError, match="Ambiguous"):
        scalar("id = 1", both)


def test_assigned_column_is_found_with_and_without_alias() -> None:
    scope = Scope({"t": TABLE}, {"target": "t"})
    found = {name: assigned_column(name, scope) for name in ("my col", "target.`my col`", "ID")}
    assert {name: column and column.path for name, column in found.items()} == {
        "my col": ("my col",),
        "target.`my col`": ("my col",),
        "ID": ("Id",),
    }
    assert assigned_column("other", scope) is None


def test_cast_of_fraction_to_integer_truncates() -> None:
    value = scalar("point.y", TABLE)
    assert cast_to(value, "long").sql(dialect="duckdb") == (
        'CAST(("point"."y") - ("point"."y") % 1 AS BIGINT)'
    )


def test_value_of_the_right_type_is_not_cast() -> None:
    assert cast_to(scalar("id", TABLE), "long").sql(dialect="duckdb") == '"Id"'


def test_struct_fields_are_matched_by_name() -> None:
    given = StructType((StructField("y", "double"), StructField("X", "long")))
    made = conformed(scalar("point", TABLE), given, POINT).sql(dialect="spark")
    assert made == (
        "CASE WHEN `point` IS NULL THEN NULL "
        "ELSE STRUCT((`point`).`X` AS `X`, (`point`).`y` AS `y`) END"
    )


def test_predicates_are_normalized_for_the_history() -> None:
    assert normal("a=1 and b  in(1,2)") == "a = 1 AND (b = 1 OR b = 2)"
