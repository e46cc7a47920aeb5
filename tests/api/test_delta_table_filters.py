"""Whatever the data and the filter: skipping files never changes which rows are found."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings

from deltasql import DeltaTable, write_deltalake
from deltasql.api.connect import close_all

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
    """A comparison, a test for null, or two of them put together."""
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
    yield f"deltasql://sqlite/{tmp_path_factory.mktemp('filters')}/meta.db"
    close_all()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3),
    wanted=st.lists(conditions(), min_size=1, max_size=6),
)
def test_skipped_files_hold_no_row_of_the_answer(
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
