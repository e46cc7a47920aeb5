"""Data skipping never changes which rows a filter returns."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import deltalake
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow.parquet import filters_to_expression

from deltasql import DeltaTable, QueryBuilder, write_deltalake
from deltasql.api.catalog.connect import close_all
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("part", pa.string()),
    ]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 3),
    "s": st.sampled_from(["", "a", "b", "é", "b" * 40, "b" * 39 + "c", "\U0010ffff" * 33]),
    "day": st.integers(-2, 2).map(lambda days: date(1970, 1, 1) + timedelta(days)),
    "at": st.integers(-2000, 2000).map(lambda us: START + timedelta(microseconds=us)),
    "flag": st.booleans(),
    "part": st.sampled_from(["x", "y z", "ü"]),
}
ROW = st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()})
COMPARISONS = ("lt", "le", "eq", "ne", "ge", "gt")
names = count()


@st.composite
def conditions(draw: st.DrawFn) -> pc.Expression:
    """Generate a comparison, a null test or a combination of conditions."""
    kind = draw(st.sampled_from(["compare", "null", "valid", "in", "and", "or", "not"]))
    if kind in ("and", "or"):
        join = operator.and_ if kind == "and" else operator.or_
        return join(draw(conditions()), draw(conditions()))
    if kind == "not":
        return ~draw(conditions())
    name = draw(st.sampled_from(sorted(VALUES)))
    column = pc.field(name)
    if kind == "null":
        return column.is_null()
    if kind == "valid":
        return column.is_valid()
    kind_of = SCHEMA.field(name).type
    if kind == "in":
        return column.isin(pa.array(draw(st.lists(VALUES[name], min_size=1)), kind_of))
    compare = getattr(operator, draw(st.sampled_from(COMPARISONS)))
    found: pc.Expression = compare(column, pa.scalar(draw(VALUES[name]), kind_of))
    return found


@pytest.fixture(scope="module")
def catalog_of_lists(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "DELTASQL_STORE__SYNCHRONOUS", "off"
        )  # the test writes thousands of small files
        yield f"deltasql://sqlite/{tmp_path_factory.mktemp('filters')}/meta.db"
        close_all()


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3),
    wanted=st.lists(conditions(), min_size=1, max_size=6),
)
def test_skipped_files_contain_no_matching_row(
    catalog_of_lists: str, files: list[list[dict[str, Any]]], wanted: list[pc.Expression]
) -> None:
    uri = f"{catalog_of_lists}?table=t{next(names)}"
    for rows in files:
        data = pa.Table.from_pylist(rows, SCHEMA)
        write_deltalake(uri, data, mode="append", partition_by=["part"])
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    everything = dataset.to_table()
    assert everything.num_rows == sum(map(len, files))
    for condition in wanted:
        expected = everything.filter(condition).to_pylist()
        assert dataset.to_table(filter=condition).to_pylist() == expected, condition


@st.composite
def sql_conditions(draw: st.DrawFn) -> str:
    """Generate the same conditions as SQL; some compare with a literal of another type."""
    kind = draw(st.sampled_from(["compare", "other", "null", "in", "between", "and", "or", "not"]))
    if kind in ("and", "or"):
        return f"({draw(sql_conditions())} {kind} {draw(sql_conditions())})"
    if kind == "not":
        return f"NOT ({draw(sql_conditions())})"
    name = draw(st.sampled_from(sorted(VALUES)))
    if kind == "null":
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "other":
        return draw(st.sampled_from(["n < '1'", "n >= '1'", "n > 1.5", "n <= 1e0"]))
    if kind == "in":
        listed = ", ".join(_sql(value) for value in draw(st.lists(VALUES[name], min_size=1)))
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({listed})"
    if kind == "between":
        return f"{name} BETWEEN {_sql(draw(VALUES[name]))} AND {_sql(draw(VALUES[name]))}"
    op = draw(st.sampled_from(["<", "<=", "=", "<>", ">=", ">"]))
    return f"{name} {op} {_sql(draw(VALUES[name]))}"


def _sql(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value)
    return f"'{value}'"


@st.composite
def filter_lists(draw: st.DrawFn) -> list[Any]:
    """Generate pyarrow filters: one list of conditions, or several lists combined with OR."""
    groups = draw(st.lists(st.lists(filters(), min_size=1, max_size=3), min_size=1, max_size=2))
    return groups if len(groups) > 1 else groups[0]


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(sorted(VALUES)))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in"]))
    if op.endswith("in"):
        return name, op, draw(st.lists(VALUES[name], min_size=1))
    return name, op, draw(VALUES[name])


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3),
    wanted=st.lists(filter_lists(), min_size=1, max_size=4),
)
def test_filter_lists_return_the_rows_of_an_unskipped_scan(
    catalog_of_lists: str, files: list[list[dict[str, Any]]], wanted: list[list[Any]]
) -> None:
    uri = f"{catalog_of_lists}?table=t{next(names)}"
    for rows in files:
        data = pa.Table.from_pylist(rows, SCHEMA)
        write_deltalake(uri, data, mode="append", partition_by=["part"])
    table = DeltaTable(uri)
    everything = table.to_pyarrow_table()
    for each in wanted:
        expected = everything.filter(filters_to_expression(each)).to_pylist()
        assert table.to_pyarrow_table(filters=each).to_pylist() == expected, each


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3),
    wanted=st.lists(sql_conditions(), min_size=1, max_size=4),
)
def test_query_conditions_return_the_rows_of_deltalake(
    catalog_of_lists: str, files: list[list[dict[str, Any]]], wanted: list[str]
) -> None:
    uri = f"{catalog_of_lists}?table=t{next(names)}"
    for rows in files:
        data = pa.Table.from_pylist(rows, SCHEMA)
        write_deltalake(uri, data, mode="append", partition_by=["part"])
    table = DeltaTable(uri)
    stock = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.table_uri))
    for each in wanted:
        query = f"SELECT * FROM t WHERE {each}"
        expected = pa.table(stock.execute(query)).to_pylist()
        found = pa.table(QueryBuilder().register("t", table).execute(query)).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), each
