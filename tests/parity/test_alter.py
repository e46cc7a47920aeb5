"""`alter`: columns, properties, name, description, column metadata."""

from __future__ import annotations

import json

import pytest
from deltalake import CommitProperties, Field, PostCommitHookProperties
from deltalake.exceptions import DeltaError, SchemaMismatchError
from deltalake.schema import StructType
from deltalake.table import TableAlterer

from tests.parity.lakes import Lake, rows, sample


def test_alter_returns_a_table_alterer(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert isinstance(table.alter, TableAlterer)
    assert table.alter.table is table


def test_new_column_is_null_in_old_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert table.alter.add_columns(Field("w", "integer", metadata={"k": "v"})) is None
    assert table.version() == 1
    assert table.schema().fields[-1] == Field("w", "integer", metadata={"k": "v"})
    assert rows(table) == [{**row, "w": None} for row in sample().to_pylist()]
    commit = table.history(1)[0]
    assert commit["operation"] == "ADD COLUMN"
    assert json.loads(commit["operationParameters"]["fields"]) == [
        {"name": "w", "type": "integer", "nullable": True, "metadata": {"k": "v"}}
    ]


def test_several_columns_can_be_added_and_written(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_columns([Field("x", "string"), Field("y", "double")])
    lake.write_deltalake(table, sample(id=[7, 8, 9], x=["q"] * 3, y=[0.5] * 3), mode="append")
    assert [row["x"] for row in rows(table)] == [None, None, None, "q", "q", "q"]


def test_fields_can_be_added_to_a_struct(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_columns(Field("s", StructType([Field("a", "long")])))
    table.alter.add_columns(Field("s", StructType([Field("b", "string")])))
    assert table.schema().fields[-1].type == StructType([Field("a", "long"), Field("b", "string")])


def test_add_columns_does_not_change_a_type(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(SchemaMismatchError, match="Cannot merge types long and string"):
        table.alter.add_columns(Field("id", "string"))
    assert table.version() == 0


def test_setting_a_property_keeps_the_others(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.checkpointInterval": "5"})
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 2 days"})
    assert table.metadata().configuration == {
        "delta.checkpointInterval": "5",
        "delta.logRetentionDuration": "interval 2 days",
    }
    commit = table.history(1)[0]
    assert commit["operation"] == "SET TBLPROPERTIES"
    assert json.loads(commit["operationParameters"]["properties"]) == {
        "delta.logRetentionDuration": "interval 2 days"
    }


def test_unknown_properties_are_rejected_unless_allowed(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="Error parsing property 'foo':'1'"):
        table.alter.set_table_properties({"foo": "1"})
    assert table.version() == 0
    table.alter.set_table_properties({"foo": "1"}, raise_if_not_exists=False)
    assert table.metadata().configuration == {"foo": "1"}


def test_append_only_can_be_turned_on_and_off(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(DeltaError, match="append-only"):
        table.delete()
    table = lake.DeltaTable(lake.uri("t"))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete()
    assert table.count() == 0


def test_name_and_description_can_be_set(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.set_table_name("people")
    table.alter.set_table_description("who is who")
    metadata = table.metadata()
    assert (metadata.name, metadata.description) == ("people", "who is who")
    commit = table.history(1)[0]
    assert commit["operation"] == "UPDATE TABLE METADATA"
    update = json.loads(commit["operationParameters"]["metadataUpdate"])
    assert update["description"] == "who is who"
    assert lake.DeltaTable(lake.uri("t"), version=0).metadata().name is None


def test_name_and_description_have_a_maximum_length(lake: Lake) -> None:
    table = lake.make("t", sample())
    for bad in ("", "x" * 256):
        with pytest.raises(DeltaError, match="Table name cannot be empty and cannot exceed 255"):
            table.alter.set_table_name(bad)
    with pytest.raises(DeltaError, match="Table description cannot exceed 4000"):
        table.alter.set_table_description("x" * 4001)
    table.alter.set_table_name("x" * 255)
    table.alter.set_table_description("x" * 4000)
    assert table.version() == 2


def test_new_column_metadata_is_merged_with_old(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.set_column_metadata("id", {"comment": "the key"})
    table.alter.set_column_metadata("id", {"unit": "none"})
    assert table.schema().fields[0].metadata == {"comment": "the key", "unit": "none"}
    assert table.schema().fields[1].metadata == {}
    assert table.history(1)[0]["operation"] == "UPDATE FIELD METADATA"
    with pytest.raises(DeltaError, match="No field with the provided name"):
        table.alter.set_column_metadata("zz", {"k": "v"})


def test_every_alter_method_records_commit_properties(lake: Lake) -> None:
    table = lake.make("t", sample())
    who = CommitProperties(custom_metadata={"who": "me"})
    hook = PostCommitHookProperties(create_checkpoint=False)
    given = {"commit_properties": who, "post_commithook_properties": hook}
    alter = table.alter
    alter.add_columns(Field("w", "long"), **given)
    alter.add_constraint({"c": "id > 0"}, **given)
    alter.drop_constraint("c", **given)
    alter.set_table_properties({"delta.checkpointInterval": "5"}, **given)
    alter.set_table_name("n", **given)
    alter.set_table_description("d", **given)
    alter.set_column_metadata("id", {"k": "v"}, **given)
    assert table.version() == 7
    assert [commit.get("who") for commit in table.history()] == ["me"] * 7 + [None]


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    table = lake.make("t", sample())
    who = CommitProperties(custom_metadata={"who": "me"})
    with pytest.warns(DeprecationWarning, match="positionally"):
        table.alter.add_columns(Field("w", "long"), who)
    with pytest.warns(DeprecationWarning, match="positionally"):
        table.alter.add_constraint({"c": "id > 0"}, None, who)
    with pytest.warns(DeprecationWarning, match="positionally"):
        table.alter.set_table_properties({"delta.checkpointInterval": "5"}, True, who)
    assert [commit.get("who") for commit in table.history(3)] == ["me"] * 3
