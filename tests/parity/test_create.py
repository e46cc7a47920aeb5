"""`DeltaTable.create`: options, modes and properties."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, sample

TWO = Schema([Field("id", "long", nullable=False), Field("s", "string", metadata={"k": "v"})])


@pytest.mark.two_databases
def test_create_sets_schema_and_metadata(lake: Lake) -> None:
    table = lake.DeltaTable.create(
        lake.uri("t"),
        TWO,
        partition_by="s",
        name="people",
        description="who",
        configuration={"delta.appendOnly": "true"},
    )
    assert isinstance(table, lake.DeltaTable)
    assert (table.version(), table.count()) == (0, 0)
    assert table.schema() == TWO
    metadata = table.metadata()
    assert (metadata.name, metadata.description) == ("people", "who")
    assert metadata.partition_columns == ["s"]
    assert table.metadata().configuration == {"delta.appendOnly": "true"}


def test_history_records_the_creation(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), TWO)
    (commit,) = table.history()
    assert commit["operation"] == "CREATE TABLE"
    parameters = commit["operationParameters"]
    assert parameters["mode"] == "ErrorIfExists"
    assert parameters["location"] == table.table_uri
    assert json.loads(parameters["metadata"])["id"] == table.metadata().id
    assert json.loads(parameters["protocol"])["minReaderVersion"] == 1


def test_create_accepts_an_arrow_schema(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema)
    assert table.to_pyarrow_table().schema == sample().schema
    lake.write_deltalake(table, sample(), mode="append")
    assert column(table, "id") == [1, 2, 3]


@pytest.mark.two_databases
def test_create_mode_decides_whether_an_existing_table_is_kept_or_replaced(lake: Lake) -> None:
    lake.make("t", sample())
    with pytest.raises(DeltaError, match="A Delta Lake table already exists at that location"):
        lake.DeltaTable.create(lake.uri("t"), TWO)
    with pytest.raises(DeltaError, match="`append` is not allowed for create operation"):
        lake.DeltaTable.create(lake.uri("t"), TWO, mode="append")
    kept = lake.DeltaTable.create(lake.uri("t"), TWO, mode="ignore")
    assert (kept.version(), kept.count()) == (0, 3)
    replaced = lake.DeltaTable.create(lake.uri("t"), TWO, mode="overwrite")
    assert (replaced.version(), replaced.count()) == (1, 0)
    assert replaced.schema() == TWO
    assert replaced.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"
    assert lake.DeltaTable(lake.uri("t"), version=0).count() == 3


def test_every_mode_creates_a_missing_table(lake: Lake) -> None:
    for mode in ("append", "overwrite", "ignore"):
        assert lake.DeltaTable.create(lake.uri(mode), TWO, mode=mode).version() == 0


def test_partition_columns_must_be_in_the_schema(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="zz"):
        lake.DeltaTable.create(lake.uri("t"), TWO, partition_by=["zz"])


def test_table_without_columns_is_rejected(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="At least one column must be defined"):
        lake.DeltaTable.create(lake.uri("t"), Schema([]))


def test_unknown_properties_are_rejected_unless_allowed(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="Error parsing property 'zz':'1'"):
        lake.DeltaTable.create(lake.uri("t"), TWO, configuration={"zz": "1"})
    table = lake.DeltaTable.create(
        lake.uri("t"), TWO, configuration={"zz": "1"}, raise_if_key_not_exists=False
    )
    assert table.metadata().configuration == {"zz": "1"}


def test_properties_without_a_value_are_ignored(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), TWO, configuration={"delta.appendOnly": None})
    assert table.metadata().configuration == {}


def test_create_records_commit_properties(lake: Lake) -> None:
    table = lake.DeltaTable.create(
        lake.uri("t"),
        TWO,
        commit_properties=CommitProperties(custom_metadata={"who": "me"}),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
    )
    assert table.history()[0]["who"] == "me"


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    who = CommitProperties(custom_metadata={"who": "me"})
    with pytest.warns(DeprecationWarning, match="positionally"):
        table = lake.DeltaTable.create(
            lake.uri("t"), TWO, "error", None, None, None, None, None, who
        )
    assert table.history()[0]["who"] == "me"


def test_properties_enable_their_features(lake: Lake) -> None:
    table = lake.DeltaTable.create(
        lake.uri("t"), sample().schema, configuration={"delta.enableDeletionVectors": "true"}
    )
    assert "deletionVectors" in table.protocol().reader_features
    assert "deletionVectors" in table.protocol().writer_features


def test_created_partitioned_table_can_be_written(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema, partition_by=["p"])
    lake.write_deltalake(table, sample(), mode="append")
    assert sorted(each["p"] for each in table.partitions()) == ["a", "b"]
    lake.write_deltalake(table, pa.concat_tables([sample()] * 2), mode="overwrite")
    assert table.count() == 6


def test_argument_passed_twice_is_rejected(lake: Lake) -> None:
    given = ("error", None, None, None, None, None)
    properties, hooks = CommitProperties(), PostCommitHookProperties()
    for name, values in {
        "commit_properties": (properties,),
        "post_commithook_properties": (properties, hooks),
        "raise_if_key_not_exists": (properties, hooks, True),
    }.items():
        twice = {name: values[-1]}
        with (
            pytest.warns(DeprecationWarning, match="deprecated"),
            pytest.raises(TypeError, match=f"multiple values for '{name}'"),
        ):
            lake.DeltaTable.create(lake.uri("t"), TWO, *given, *values, **twice)
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_requested_protocol_versions_are_set_and_kept(lake: Lake) -> None:
    schema = sample().schema
    for number, (configuration, versions) in enumerate(
        [
            ({"delta.minWriterVersion": "3"}, (1, 3)),
            ({"delta.minWriterVersion": "5"}, (1, 5)),
            ({"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, (2, 5)),
        ]
    ):
        made = lake.DeltaTable.create(
            lake.uri(f"made{number}"), schema, configuration=configuration
        )
        changed = lake.DeltaTable.create(lake.uri(f"changed{number}"), schema)
        changed.alter.set_table_properties(configuration)
        replaced = lake.DeltaTable.create(lake.uri(f"replaced{number}"), schema)
        if lake.system != "stock":  # stock keeps the protocol of the replaced table
            lake.DeltaTable.create(
                lake.uri(f"replaced{number}"), schema, mode="overwrite", configuration=configuration
            )
            replaced.update_incremental()
            assert replaced.protocol()[:2] == versions, configuration
        for table in (made, changed):
            assert table.protocol() == (*versions, None, None), configuration
            assert table.metadata().configuration == configuration
            lake.write_deltalake(table, sample(), mode="append")
            assert table.protocol() == (*versions, None, None), configuration
    listed = lake.DeltaTable.create(
        lake.uri("listed"), schema, configuration={"delta.minWriterVersion": "7"}
    )
    assert listed.protocol().min_writer_version == 7
    assert {"appendOnly", "invariants"} <= set(listed.protocol().writer_features)


def test_allowed_unknown_properties_are_stored(lake: Lake) -> None:
    unknown = {"delta.unknown": "x", "own": "y"}
    place, schema = lake.uri("t"), sample().schema
    options = {"configuration": unknown, "raise_if_key_not_exists": False}
    table = lake.DeltaTable.create(place, schema, **options)
    assert table.metadata().configuration == unknown
    lake.write_deltalake(table, sample(), mode="append")
    table.alter.set_table_properties({"delta.other": "z"}, raise_if_not_exists=False)
    assert table.metadata().configuration == {**unknown, "delta.other": "z"}
    assert lake.DeltaTable.create(place, schema, mode="overwrite", **options).version() == 3
    table.update_incremental()
    assert table.metadata().configuration == unknown
    with pytest.raises(DeltaError, match="Error parsing property"):
        lake.DeltaTable.create(lake.uri("u"), schema, configuration=unknown)
    with pytest.raises(DeltaError, match=r"delta\.unknown"):
        table.alter.set_table_properties({"delta.unknown": "x"})
