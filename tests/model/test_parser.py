"""SQL expressions are parsed in one place, and data skipping and engines use the same tree."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.exceptions import TxnLogSchemaError, UnsupportedReleaseError
from deltasql.model.predicates.parser import reject_compiled
from deltasql.model.predicates.predicate import parse_predicate
from deltasql.model.schema.schema import MapType, StructField, StructType
from deltasql.operations.sql.expressions import condition_of, scalar

if TYPE_CHECKING:
    from deltasql.model.predicates.parser import Flavour

SOURCE = Path(deltasql.__file__).parent
# Expressions, queries over the catalog, statements, queries of deltalake's QueryBuilder, and
# subqueries, to find the columns that they use.
PARSERS = {
    "model/predicates/parser.py",
    "model/predicates/query_text.py",
    "model/statements/tables_in_query.py",
    "model/statements/tokens.py",
    "api/deltalake_compat/query_builder.py",
    "api/sql/subqueries.py",
}
TABLE = StructType(
    (
        StructField("Id", "long"),
        StructField("s", "string"),
        StructField("at", "timestamp"),
        StructField("props", MapType("string", "long")),
        StructField("place", StructType((StructField("City", "string"),))),
    )
)


def test_no_other_module_parses_sql() -> None:
    calls = {"parse", "parse_one", "tokenize", "maybe_parse", "condition"}
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("sqlglot", "exp")
        and node.func.attr in calls
    }
    assert found == PARSERS


@pytest.mark.parametrize(
    ("flavour", "value", "shown"),
    [("datafusion", r"a\\b", r"'a\\b'"), ("spark", r"a\b", r"'a\b'")],
)
def test_dialect_decides_what_a_backslash_means(flavour: Flavour, value: str, shown: str) -> None:
    predicate = parse_predicate(r"s = 'a\\b'", TABLE, flavour=flavour)
    assert predicate.tree["value"] == value
    assert condition_of(predicate).sql(dialect="duckdb") == f'"s" = {shown}'


def test_backslash_skips_no_file_if_the_dialect_is_unknown() -> None:
    assert parse_predicate(r"s = 'a\\b'", TABLE).tree == {"op": "unknown"}


def test_condition_for_engines_has_exact_names_and_utc() -> None:
    predicate = parse_predicate("ID = 1 AND at < '2024-05-01' AND Place.city = 'x'", TABLE)
    assert condition_of(predicate, "t").sql(dialect="duckdb") == (
        '"t"."Id" = 1 AND "t"."at" < CAST(\'2024-05-01T00:00:00Z\' AS TIMESTAMPTZ) '
        'AND "t"."place"."City" = \'x\''
    )
    assert [column.path for column in predicate.columns] == [("Id",), ("at",), ("place", "City")]


def test_map_key_in_a_condition_reads_the_map_column() -> None:
    predicate = parse_predicate("props.k = 1", TABLE)
    assert [column.path for column in predicate.columns] == [("props",)]
    assert condition_of(predicate).sql(dialect="duckdb") == "\"props\"['k'] = 1"


def test_condition_with_a_subquery_is_rejected_for_engines() -> None:
    with pytest.raises(TxnLogSchemaError, match="contains a query"):
        condition_of(parse_predicate("id IN (SELECT 1)", TABLE))


@pytest.mark.parametrize("text", ["id.x = 1", "place.town = 'x'", "s.length > 1"])
def test_condition_on_a_missing_struct_field_is_unknown(text: str) -> None:
    with pytest.raises(TxnLogSchemaError, match="No field named"):
        parse_predicate(text, TABLE)
    with pytest.raises(TxnLogSchemaError, match="No field named"):
        scalar(text, TABLE)


@pytest.mark.parametrize("text", ["(" * 5000 + "id" + ")" * 5000, "NOT " * 5000 + "TRUE"])
def test_deeply_nested_expression_is_rejected(text: str) -> None:
    with pytest.raises(TxnLogSchemaError, match="nested too deeply"):
        scalar(text, TABLE)
    with pytest.raises(TxnLogSchemaError, match="nested too deeply"):
        parse_predicate(text, TABLE)


@pytest.mark.parametrize("text", ["to_char(at) = 'x'", "date_format() = 'x'", "to_date() = 'x'"])
def test_function_with_too_few_arguments_is_rejected(text: str) -> None:
    with pytest.raises(TxnLogSchemaError):
        parse_predicate(text, TABLE)


def test_compiled_sqlglot_is_rejected() -> None:
    with pytest.raises(UnsupportedReleaseError, match="sqlglotc") as caught:
        reject_compiled(bool)  # like the classes of sqlglotc
    assert caught.value.help == "Run: pip uninstall sqlglotc"
