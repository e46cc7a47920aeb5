"""Table features: when they are added, and which protocol a table then requires."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.table import (
    MAX_SUPPORTED_READER_VERSION,
    SUPPORTED_READER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
)

from tests.parity.lakes import Lake, sample

LEGACY = {"appendOnly", "invariants"}


def test_plain_table_needs_the_lowest_protocol(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert lake.features(table) <= LEGACY
    assert table.protocol().min_reader_version == 1


@pytest.mark.two_databases
def test_timestamp_ntz_needs_a_feature(lake: Lake) -> None:
    table = lake.make("t", pa.table({"ts": pa.array([0], pa.timestamp("us"))}))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["timestampNtz"]
    assert "timestampNtz" in protocol.writer_features


def test_added_timestamp_ntz_column_adds_the_feature(lake: Lake) -> None:
    table = lake.make("t", sample())
    timestamps = pa.array([0, 0, 0], pa.timestamp("us"))
    lake.write_deltalake(table, sample(ts=timestamps), mode="append", schema_mode="merge")
    assert "timestampNtz" in table.protocol().reader_features


def test_properties_and_constraints_add_their_feature(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.enableChangeDataFeed": "true"})
    assert "changeDataFeed" in lake.features(table)
    other = lake.make("u", sample())
    other.alter.add_constraint({"c": "id > 0"})
    assert "checkConstraints" in lake.features(other)


@pytest.mark.two_databases
def test_add_feature_sets_a_writer_feature(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert "changeDataFeed" in protocol.writer_features
    assert protocol.reader_features is None
    assert table.history(1)[0]["operation"] == "ADD FEATURE"
    assert table.history(1)[0]["operationParameters"] == {"name": '["changeDataFeed"]'}


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        (TableFeatures.DeletionVectors, "deletionVectors"),
        (TableFeatures.ColumnMapping, "columnMapping"),
        (TableFeatures.TimestampWithoutTimezone, "timestampNtz"),
        (TableFeatures.V2Checkpoint, "v2Checkpoint"),
    ],
    ids=str,
)
def test_add_feature_sets_a_reader_feature(lake: Lake, feature: TableFeatures, name: str) -> None:
    table = lake.make("t", sample())
    table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == [name]
    assert name in protocol.writer_features


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        (TableFeatures.AppendOnly, "appendOnly"),
        (TableFeatures.CheckConstraints, "checkConstraints"),
        (TableFeatures.DomainMetadata, "domainMetadata"),
        (TableFeatures.GeneratedColumns, "generatedColumns"),
        (TableFeatures.IdentityColumns, "identityColumns"),
        (TableFeatures.Invariants, "invariants"),
    ],
    ids=str,
)
def test_add_feature_accepts_every_writer_feature(
    lake: Lake, feature: TableFeatures, name: str
) -> None:
    table = lake.make("t", sample())
    table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    assert name in table.protocol().writer_features


def test_several_features_can_be_added_at_once(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_feature(
        [TableFeatures.ChangeDataFeed, TableFeatures.DeletionVectors],
        allow_protocol_versions_increase=True,
    )
    assert {"changeDataFeed", "deletionVectors"} <= lake.features(table)
    assert table.protocol().reader_features == ["deletionVectors"]
    with pytest.raises(DeltaError, match="No features provided"):
        table.alter.add_feature([])


def test_reader_feature_needs_permission_to_raise_the_protocol(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="allow_protocol_versions_increase"):
        table.alter.add_feature(TableFeatures.DeletionVectors)
    assert table.version() == 0


def test_table_with_features_can_be_written(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    lake.write_deltalake(table, sample(), mode="append")
    table.delete("id = 1")
    assert table.count() == 4


@pytest.mark.parametrize(
    ("change", "protocol"),
    [
        (lambda table: None, (1, 2, None, None)),
        (lambda table: table.alter.add_constraint({"c": "id > 0"}), (1, 3, None, None)),
        (lambda table: _set(table, "delta.enableChangeDataFeed", "true"), (1, 4, None, None)),
        (lambda table: _set(table, "delta.minWriterVersion", "4"), (1, 4, None, None)),
        (
            lambda table: table.alter.add_feature(
                TableFeatures.AppendOnly, allow_protocol_versions_increase=True
            ),
            (1, 7, ["appendOnly"], None),
        ),
    ],
    ids=["plain", "constraint", "feed", "version", "feature"],
)
def test_change_sets_the_same_protocol_as_deltalake(lake: Lake, change: Any, protocol: Any) -> None:
    table = lake.make("t", sample())
    change(table)
    assert table.protocol() == protocol
    assert lake.DeltaTable(lake.uri("t")).protocol() == protocol
    assert lake.DeltaTable(lake.uri("t"), version=0).protocol() == (1, 2, None, None)


def test_dropping_a_constraint_keeps_the_protocol(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.add_constraint({"c": "id > 0"})
    table.alter.drop_constraint("c")
    assert table.protocol() == (1, 3, None, None)
    assert table.metadata().configuration == {}


def test_writer_feature_needs_permission_to_raise_the_protocol(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="min_writer is not v7"):
        table.alter.add_feature(TableFeatures.ChangeDataFeed)
    assert table.version() == 0


def _set(table: Any, key: str, value: str) -> None:
    table.alter.set_table_properties({key: value})


@pytest.mark.two_databases
def test_protocol_without_in_commit_timestamps_equals_that_of_deltalake(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_TABLE__IN_COMMIT_TIMESTAMPS", "false")
    table = lake.make("t", sample())
    assert table.protocol() == (1, 2, None, None)
    assert table.metadata().configuration == {}
    table.alter.add_constraint({"c": "id > 0"})
    assert table.protocol() == (1, 3, None, None)
    feed = lake.make("u", sample(), configuration={"delta.enableChangeDataFeed": "true"})
    assert feed.protocol() == (1, 4, None, None)
    ntz = lake.make("v", pa.table({"ts": pa.array([0], pa.timestamp("us"))}))
    assert ntz.protocol() == (3, 7, ["timestampNtz"], ["timestampNtz"])


def test_module_constants_list_supported_features() -> None:
    assert MAX_SUPPORTED_READER_VERSION == 3
    assert "timestampNtz" in SUPPORTED_READER_FEATURES
    assert "appendOnly" in SUPPORTED_WRITER_FEATURES
