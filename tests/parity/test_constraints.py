"""NOT NULL, CHECK constraints, column invariants and generated columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, Schema
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, rows, sample

VIOLATED = "Invalid data found: {} rows failed validation check"


def doubled(lake: Lake) -> Any:
    """Create a table whose second column is generated as twice the first."""
    twice = Field("twice", "long", metadata={"delta.generationExpression": "id * 2"})
    return lake.DeltaTable.create(lake.uri("t"), Schema([Field("id", "long"), twice]))


def test_constraint_is_a_property_and_raises_the_protocol(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert table.alter.add_constraint({"positive": "id > 0"}) is None
    assert table.version() == 1
    assert table.metadata().configuration == {"delta.constraints.positive": "id > 0"}
    assert "checkConstraints" in lake.features(table)
    commit = table.history(1)[0]
    assert commit["operation"] == "ADD CONSTRAINT"
    assert commit["operationParameters"] == {"constraints": '[{"name":"positive","expr":"id > 0"}]'}


def test_rows_that_break_a_constraint_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(DeltaError, match=VIOLATED.format(2)):
        lake.write_deltalake(table, sample(id=[-1, 5, -2]), mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(3)):
        lake.write_deltalake(table, sample(id=[-1, -1, -2]), mode="overwrite")
    with pytest.raises(DeltaError, match=VIOLATED.format(3)):
        table.update({"id": "-1"})
    bad = sample(id=[-5, 1, 2])
    merge = table.merge(bad, "s.id = t.id", source_alias="s", target_alias="t")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        merge.when_not_matched_insert_all().execute()
    lake.write_deltalake(table, sample(id=[7, 8, 9]), mode="append")
    assert column(lake.DeltaTable(lake.uri("t")), "id") == [1, 2, 3, 7, 8, 9]


def test_constraint_rejects_null(lake: Lake) -> None:
    table = lake.make("t", sample().slice(0, 1))
    table.alter.add_constraint({"positive": "v > 0"})
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        lake.write_deltalake(table, sample(), mode="append")
    assert table.count() == 1


def test_constraint_that_existing_rows_violate_is_not_added(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        table.alter.add_constraint({"big": "id > 1"})
    assert table.version() == 0
    assert table.metadata().configuration == {}


def test_constraint_on_a_missing_column_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="zz"):
        table.alter.add_constraint({"c": "zz > 1"})


def test_empty_constraint_is_rejected(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="No check constraint"):
        lake.make("t", sample()).alter.add_constraint({})


def test_constraint_name_cannot_have_two_expressions(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_constraint({"c": "id > 0"})
    table.alter.add_constraint({"c": "id > 0"})
    with pytest.raises(DeltaError, match="already exists with a different expression"):
        table.alter.add_constraint({"c": "id > -5"})
    assert table.metadata().configuration == {"delta.constraints.c": "id > 0"}


def test_dropped_constraint_is_not_checked(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_constraint({"c": "id > 0"})
    assert table.alter.drop_constraint("c") is None
    assert table.metadata().configuration == {}
    commit = table.history(1)[0]
    assert (commit["operation"], commit["operationParameters"]) == (
        "DROP CONSTRAINT",
        {"name": "c"},
    )
    lake.write_deltalake(table, sample(id=[-1, -2, -3]), mode="append")
    assert table.count() == 6


def test_dropping_a_missing_constraint_raises_unless_allowed(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="Constraint with name 'zz' does not exist"):
        table.alter.drop_constraint("zz")
    table.alter.drop_constraint("zz", raise_if_not_exists=False)
    assert table.version() == 0


def test_constraint_can_use_several_columns_and_strings(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_constraint({"known": "p in ('a', 'b') and (v is null or v < id * 10)"})
    lake.write_deltalake(table, sample(), mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(3)):
        lake.write_deltalake(table, sample(p=["c", "c", "c"]), mode="append")


def test_not_null_column_rejects_null(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    table = lake.DeltaTable.create(lake.uri("t"), schema)
    lake.write_deltalake(table, pa.table({"id": [1], "s": ["x"]}), mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        nulls = pa.table({"id": pa.array([2, None], pa.int64()), "s": ["x", "y"]})
        lake.write_deltalake(table, nulls, mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        lake.write_deltalake(table, pa.table({"s": ["x"]}), mode="append", schema_mode="merge")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        table.update({"id": "null"})
    assert lake.DeltaTable(lake.uri("t")).count() == 1


def test_not_null_can_be_dropped(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    table = lake.DeltaTable.create(lake.uri("t"), schema)
    table.alter.drop_column_not_null("id")
    assert table.schema().fields[0].nullable is True
    assert table.history(1)[0]["operation"] == "CHANGE COLUMN"
    lake.write_deltalake(
        table, pa.table({"id": pa.array([None], pa.int64()), "s": ["x"]}), mode="append"
    )
    assert rows(table) == [{"id": None, "s": "x"}]
    with pytest.raises(DeltaError, match="already nullable"):
        table.alter.drop_column_not_null("id")
    with pytest.raises(DeltaError, match="'zz'"):
        table.alter.drop_column_not_null("zz")


def test_column_invariant_is_checked(lake: Lake) -> None:
    rule = {"delta.invariants": '{"expression": {"expression": "id > 3"}}'}
    schema = Schema([Field("id", "long", metadata=rule)])
    table = lake.DeltaTable.create(lake.uri("t"), schema)
    assert table.schema().invariants == [("id", "id > 3")]
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        lake.write_deltalake(table, pa.table({"id": [1, 9]}), mode="append")
    lake.write_deltalake(table, pa.table({"id": [4]}), mode="append")
    assert column(table, "id") == [4]


def test_missing_generated_values_are_computed(lake: Lake) -> None:
    table = doubled(lake)
    assert "generatedColumns" in lake.features(table)
    lake.write_deltalake(table, pa.table({"id": [1, 2]}), mode="append")
    assert rows(table) == [{"id": 1, "twice": 2}, {"id": 2, "twice": 4}]


def test_written_values_of_generated_columns_are_checked(lake: Lake) -> None:
    table = doubled(lake)
    lake.write_deltalake(table, pa.table({"id": [5], "twice": [10]}), mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        lake.write_deltalake(table, pa.table({"id": [1, 2], "twice": [2, 5]}), mode="append")
    assert rows(lake.DeltaTable(lake.uri("t"))) == [{"id": 5, "twice": 10}]


def test_merge_computes_generated_values(lake: Lake) -> None:
    table = doubled(lake)
    source = pa.table({"id": [7]})
    table.merge(source, "s.id = t.id", "s", "t").when_not_matched_insert({"id": "s.id"}).execute()
    assert rows(table) == [{"id": 7, "twice": 14}]
    source = pa.table({"id": [8]})
    table.merge(source, "s.id = t.id", "s", "t").when_not_matched_insert_all().execute()
    assert rows(table) == [{"id": 7, "twice": 14}, {"id": 8, "twice": 16}]


def test_update_checks_generated_columns(lake: Lake) -> None:
    table = doubled(lake)
    lake.write_deltalake(table, pa.table({"id": [1]}), mode="append")
    with pytest.raises(DeltaError, match=VIOLATED.format(1)):
        table.update({"twice": "7"})
    table.update({"id": "id + 10", "twice": "(id + 10) * 2"})
    assert rows(table) == [{"id": 11, "twice": 22}]


def test_constraint_stores_column_names_in_double_quotes(lake: Lake) -> None:
    data = pa.table({"id": [1], "Two Words": [1]})
    for number, text in enumerate(["`Two Words` > 0", '"Two Words" > 0']):
        table = lake.make(f"t{number}", data)
        table.alter.add_constraint({"c": text})
        assert table.metadata().configuration == {"delta.constraints.c": '"Two Words" > 0'}
        with pytest.raises(DeltaError):
            lake.write_deltalake(table, pa.table({"id": [1], "Two Words": [0]}), mode="append")
        lake.write_deltalake(table, data, mode="append")
        assert table.count() == 2
