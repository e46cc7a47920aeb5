"""Opening a table and its versions, and the metadata of a handle."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import deltalake
import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.table import DeltaTableConfig, Metadata, ProtocolVersions

from tests.parity.lakes import Lake, column, rows, sample


@pytest.mark.two_databases
def test_table_opens_at_its_latest_version(lake: Lake) -> None:
    lake.make("t", sample())
    lake.append("t", sample())
    table = lake.DeltaTable(lake.uri("t"))
    assert table.version() == 1
    assert table.count() == 6
    assert column(table, "id") == [1, 1, 2, 2, 3, 3]


def test_table_is_an_instance_of_deltalakes_class(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert isinstance(table, deltalake.DeltaTable)
    assert repr(table) == "DeltaTable()"
    assert table == lake.DeltaTable(lake.uri("t"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(table)


@pytest.mark.two_databases
def test_version_argument_opens_an_older_version(lake: Lake) -> None:
    lake.make("t", sample())
    lake.append("t", sample())
    table = lake.DeltaTable(lake.uri("t"), version=0)
    assert (table.version(), table.count()) == (0, 3)
    assert lake.DeltaTable(lake.uri("t"), 1).version() == 1
    assert lake.DeltaTable(table_uri=lake.uri("t"), version=None).version() == 1


@pytest.mark.two_databases
def test_missing_version_raises(lake: Lake) -> None:
    lake.make("t", sample())
    with pytest.raises(DeltaError, match="99"):
        lake.DeltaTable(lake.uri("t"), version=99)
    with pytest.raises(OverflowError, match="negative"):
        lake.DeltaTable(lake.uri("t"), version=-1)


def test_load_as_version_changes_the_version_of_the_handle(lake: Lake) -> None:
    table = lake.make("t", sample())
    for value in (10, 20):
        lake.write_deltalake(table, sample(id=[value] * 3), mode="overwrite")
    assert table.version() == 2
    assert table.load_as_version(1) is None
    assert (table.version(), column(table, "id")) == (1, [10, 10, 10])
    table.load_as_version(0)
    assert column(table, "id") == [1, 2, 3]
    table.load_as_version(2)
    assert column(table, "id") == [20, 20, 20]


def test_load_as_version_rejects_invalid_arguments(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="9"):
        table.load_as_version(9)
    with pytest.raises(ValueError, match="Failed to parse datetime string"):
        table.load_as_version("no time at all")
    with pytest.raises(TypeError, match="only int, str or datetime are accepted"):
        table.load_as_version(1.5)
    with pytest.raises(OverflowError):
        table.load_as_version(-1)
    assert table.version() == 0


@pytest.mark.two_databases
def test_load_as_version_accepts_timestamps(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    table.load_as_version("2001-01-01T00:00:00Z")
    assert table.version() == 0
    table.load_as_version("2201-01-01T00:00:00+02:00")
    assert table.version() == 1
    table.load_as_version(datetime(2001, 1, 1))
    assert table.version() == 0
    table.load_as_version(datetime.now(UTC) + timedelta(hours=1))
    assert table.version() == 1


def test_timestamp_after_the_last_commit_loads_the_last_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    for _ in range(3):
        lake.write_deltalake(table, sample(), mode="append")
    times = {each["version"]: each["timestamp"] for each in table.history()}
    last = datetime.fromtimestamp(times[3] / 1000, UTC) + timedelta(seconds=1)
    table.load_as_version(last)
    assert table.version() == 3


@pytest.mark.two_databases
def test_update_incremental_loads_commits_of_other_handles(lake: Lake) -> None:
    mine = lake.make("t", sample())
    lake.append("t", sample())
    assert mine.version() == 0
    assert mine.count() == 3
    assert mine.update_incremental() is None
    assert (mine.version(), mine.count()) == (1, 6)


def test_update_incremental_after_time_travel_loads_the_latest_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    table.load_as_version(0)
    table.update_incremental()
    assert table.version() == 1


def test_writing_through_a_handle_updates_its_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    assert (table.version(), table.count()) == (1, 6)


def test_handle_at_an_old_version_can_append(lake: Lake) -> None:
    lake.make("t", sample())
    lake.append("t", sample())
    old = lake.DeltaTable(lake.uri("t"), version=0)
    lake.write_deltalake(old, sample(), mode="append")
    assert lake.DeltaTable(lake.uri("t")).version() == 2
    assert lake.DeltaTable(lake.uri("t")).count() == 9


def test_opening_a_missing_table_raises(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        lake.DeltaTable(lake.nowhere("t"))
    with pytest.raises(DeltaError):
        lake.DeltaTable(lake.nowhere("t"), version=0)


@pytest.mark.two_databases
def test_is_deltatable_returns_whether_a_table_exists(lake: Lake) -> None:
    lake.make("t", sample())
    assert lake.DeltaTable.is_deltatable(lake.uri("t")) is True
    assert lake.DeltaTable.is_deltatable(lake.uri("u")) is False
    assert lake.DeltaTable.is_deltatable(lake.nowhere("t2")) is False
    assert lake.DeltaTable.is_deltatable("qqq://some/where") is False


def test_unknown_scheme_raises_table_not_found(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError, match="Unknown scheme"):
        lake.DeltaTable("qqq://some/where")


def test_table_uri_is_the_folder_with_a_trailing_slash(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert re.fullmatch(r"file:///.*/t/", table.table_uri)
    assert (lake.folder(table) / "_delta_log" / f"{0:020}.json").exists()


def test_deprecated_arguments_warn_and_have_no_effect(lake: Lake) -> None:
    lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match="without_files"):
        table = lake.DeltaTable(lake.uri("t"), without_files=True)
    assert len(table.file_uris()) == 1
    with pytest.warns(DeprecationWarning, match="log_buffer_size"):
        lake.DeltaTable(lake.uri("t"), log_buffer_size=4)
    with pytest.warns(DeprecationWarning, match="skip_stats"):
        lake.DeltaTable(lake.uri("t"), skip_stats=True)


def test_table_config_is_deprecated(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match="table_config"):
        config = table.table_config
    assert isinstance(config, DeltaTableConfig)
    assert (config.without_files, config.skip_stats) == (False, False)


@pytest.mark.two_databases
def test_metadata_has_the_values_of_the_create_call(lake: Lake) -> None:
    before = datetime.now(UTC).timestamp() * 1000 - 1
    table = lake.make(
        "t",
        sample(),
        name="people",
        description="who is who",
        partition_by=["p"],
        configuration={"delta.logRetentionDuration": "interval 3 days"},
    )
    metadata = table.metadata()
    assert isinstance(metadata, Metadata)
    assert (metadata.name, metadata.description) == ("people", "who is who")
    assert metadata.partition_columns == ["p"]
    assert table.metadata().configuration == {"delta.logRetentionDuration": "interval 3 days"}
    assert before <= metadata.created_time <= datetime.now(UTC).timestamp() * 1000 + 1
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata.id)
    assert str(metadata).startswith(f"Metadata(id: {metadata.id}, name: people, description: who")


def test_metadata_defaults_are_empty(lake: Lake) -> None:
    metadata = lake.make("t", sample()).metadata()
    assert (metadata.name, metadata.description) == (None, None)
    assert metadata.partition_columns == []


def test_metadata_keeps_its_id_over_versions(lake: Lake) -> None:
    table = lake.make("t", sample())
    first = table.metadata().id
    lake.write_deltalake(table, sample(), mode="overwrite")
    assert table.metadata().id == first
    assert (
        table.metadata().created_time == lake.DeltaTable(lake.uri("t"), 0).metadata().created_time
    )


def test_protocol_is_a_named_tuple(lake: Lake) -> None:
    protocol = lake.make("t", sample()).protocol()
    assert isinstance(protocol, ProtocolVersions)
    assert protocol.min_reader_version == 1
    assert protocol.reader_features is None


def test_two_tables_are_independent(lake: Lake) -> None:
    one, two = lake.make("one", sample()), lake.make("two", sample(id=[7, 8, 9]))
    assert column(one, "id") == [1, 2, 3]
    assert column(two, "id") == [7, 8, 9]
    assert one.metadata().id != two.metadata().id


def test_storage_options_of_a_local_table_are_kept(lake: Lake) -> None:
    lake.make("t", sample())
    table = lake.DeltaTable(lake.uri("t"), storage_options={"timeout": "30s"})
    assert table._storage_options == {"timeout": "30s"}
    assert rows(table)[0] == {"id": 1, "p": "a", "v": 1.5}
    assert lake.DeltaTable(lake.uri("t"))._storage_options is None
