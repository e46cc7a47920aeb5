"""NOT NULL, constraints, invariants and generated columns are enforced for every written row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import Field, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltasql.exceptions import InvalidDataError
from deltasql.operations.rules.not_null import not_null_paths, null_rows
from deltasql.operations.rules.row_checks import checked, preview
from tests.selection import examples

if TYPE_CHECKING:
    from deltasql import Catalog

REFUSED = (
    "^Generic DeltaTable error: External error: "
    r"Invalid data found: {} rows failed validation check\."
)
LONG = PrimitiveType("long")


def read(catalog: Catalog, name: str = "t") -> list[dict[str, Any]]:
    with catalog.begin() as tx:
        found: list[dict[str, Any]] = tx.read(name).to_pylist()
    return found


def write(catalog: Catalog, rows: pa.Table, **options: Any) -> None:
    with catalog.begin() as tx:
        tx.write("t", rows, **options)


def generated() -> Schema:
    return Schema(
        [
            Field("a", "long"),
            Field("twice", "long", metadata={"delta.generationExpression": "a * 2"}),
            Field("text", "string", metadata={"delta.generationExpression": "cast(a as string)"}),
        ]
    )


# Constraints and invariants


def test_constraint_must_be_true_for_every_row(catalog: Catalog) -> None:
    rule = {"delta.constraints.positive": "id > 0", "delta.constraints.named": "name <> 'zz'"}
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    catalog.create_table("t", schema, properties=rule)
    write(catalog, pa.table({"id": [1], "name": ["a"]}))
    wrong = pa.table({"id": [-1, None, 3, 4], "name": ["a", "b", "zz", "d"]})
    with pytest.raises(InvalidDataError, match=REFUSED.format(3)) as caught:
        write(catalog, wrong)
    assert "| -1 | a    |" in str(caught.value)
    assert "named, positive" in str(caught.value)
    assert len(read(catalog)) == 1


def test_invariant_must_be_true_for_every_row(catalog: Catalog) -> None:
    rule = json.dumps({"expression": {"expression": "a > 3"}})
    schema = Schema([Field("a", "long", metadata={"delta.invariants": rule})])
    catalog.create_table("t", schema)
    write(catalog, pa.table({"a": [4]}))
    with pytest.raises(InvalidDataError, match=REFUSED.format(2)):
        write(catalog, pa.table({"a": [1, None]}))


def test_stream_is_checked_batch_by_batch(catalog: Catalog) -> None:
    rule = {"delta.constraints.positive": "id >= 0"}
    catalog.create_table("t", pa.schema([("id", pa.int64())]), properties=rule)
    batches = [pa.record_batch({"id": [n] * 60_000}) for n in (1, 2, 3, -1, 5)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    with pytest.raises(InvalidDataError, match=REFUSED.format(60000)):
        write(catalog, reader)  # type: ignore[arg-type]
    assert read(catalog) == []
    assert catalog.store.intents_before(2**60) == []


# Generated columns


def test_missing_generated_columns_are_computed(catalog: Catalog) -> None:
    catalog.create_table("t", generated())
    write(catalog, pa.table({"a": [5, None]}))
    write(catalog, pa.table({"twice": [12], "a": [6]}))
    write(catalog, pa.table({"a": [7], "more": [1]}), schema_mode="merge")
    assert sorted(read(catalog), key=str) == [
        {"a": 5, "twice": 10, "text": "5", "more": None},
        {"a": 6, "twice": 12, "text": "6", "more": None},
        {"a": 7, "twice": 14, "text": "7", "more": 1},
        {"a": None, "twice": None, "text": None, "more": None},
    ]


@pytest.mark.parametrize("twice", [11, None])
def test_wrong_values_of_generated_columns_are_rejected(catalog: Catalog, twice: Any) -> None:
    catalog.create_table("t", generated())
    rows = pa.table({"a": [5], "twice": pa.array([twice], pa.int64()), "text": ["5"]})
    with pytest.raises(InvalidDataError, match=REFUSED.format(1)):
        write(catalog, rows)


def test_generated_column_can_be_a_partition_column(catalog: Catalog) -> None:
    day = Field("day", "date", metadata={"delta.generationExpression": "CAST(at AS DATE)"})
    catalog.create_table("t", Schema([Field("at", "timestamp"), day]), partition_by=["day"])
    from datetime import UTC, datetime

    write(catalog, pa.table({"at": [datetime(2024, 5, 1, 23, 30, tzinfo=UTC)]}))
    (file,) = catalog.table("t").scan().arrow.to_pylist()
    assert json.loads(file["partition"]) == {"day": "2024-05-01"}


# NOT NULL

NESTED = Schema(
    [
        Field("id", "long", nullable=False),
        Field("s", StructType([Field("x", "long", nullable=False), Field("y", "long")])),
        Field("l", ArrayType(LONG, contains_null=False)),
        Field("m", MapType(PrimitiveType("string"), LONG, value_contains_null=False)),
    ]
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
FINE = {"id": 1, "s": {"x": 1, "y": None}, "l": [1], "m": [("k", 1)]}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, False),
        ({"s": None, "l": None, "m": None}, False),
        ({"l": [], "m": []}, False),
        ({"id": None}, True),
        ({"s": {"x": None, "y": 1}}, True),
        ({"l": [1, None]}, True),
        ({"m": [("k", None)]}, True),
    ],
    ids=str,
)
def test_null_in_not_null_field_is_rejected(
    catalog: Catalog, change: dict[str, Any], broken: bool
) -> None:
    catalog.create_table("t", NESTED)
    rows = pa.Table.from_pylist([FINE, FINE | change, FINE], ARROW)
    with catalog.begin() as tx:
        target = tx.target("t")
        relation = target.engine.rows(rows)
        if broken:
            with pytest.raises(InvalidDataError, match=REFUSED.format(1)):
                checked(target, relation)
            with pytest.raises(InvalidDataError, match=REFUSED.format(1)):
                tx.write("t", rows)
        else:
            assert len(target.engine.collect(checked(target, relation))) == 3
            tx.write("t", rows)


_values = st.none() | st.integers(0, 3)
_members = st.fixed_dictionaries({"x": st.none() | st.integers(0, 3), "y": st.none()})
_rows = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(0, 3),
        "s": st.none() | _members,
        "l": st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3),
        "m": st.none()
        | st.lists(st.tuples(st.text("k", min_size=1), st.none() | st.integers(0, 3)), max_size=2),
    }
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_rows, min_size=1, max_size=6), st.integers(0, 5))
def test_null_rows_finds_every_forbidden_null(rows: list[dict[str, Any]], start: int) -> None:
    from deltasql.model.schema.convert import schema_from_any

    batch = pa.RecordBatch.from_pylist(rows, ARROW).slice(start % len(rows))
    found = set()
    for rule in not_null_paths(schema_from_any(NESTED)):
        mask = null_rows(batch, rule)
        found |= (
            {n for n, wrong in enumerate(mask.to_pylist()) if wrong} if mask is not None else set()
        )
    expected = set()
    for number, row in enumerate(rows[start % len(rows) :]):
        lists = row["l"] or []
        values = [value for _, value in row["m"] or []]
        member = row["s"] is not None and row["s"]["x"] is None
        if row["id"] is None or member or None in lists or None in values:
            expected.add(number)
    assert found == expected


def test_preview_shows_values_of_every_type() -> None:
    rows = pa.table({"b": [True], "s": [{"x": None, "y": [1, None]}], "raw": [b"\x01"]})
    assert preview(rows).splitlines()[3] == "| true | {x: , y: [1, ]} | 01  |"
