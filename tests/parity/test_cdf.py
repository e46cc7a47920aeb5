"""`load_cdf` returns the change data feed of tables that have it enabled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from arro3.core import RecordBatchReader
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, sample
from tests.parity.test_merge import merge

FEED = {"delta.enableChangeDataFeed": "true"}


def feed(table: Any, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows of the feed as (version, id, change type, v)."""
    found = pa.table(table.load_cdf(**options)).to_pylist()
    return sorted(
        (
            (
                row["_commit_version"],
                row["id"],
                row["_change_type"].removeprefix("update_"),
                row["v"],
            )
            for row in found
        ),
        key=lambda row: row[:3],
    )


def changed(lake: Lake, **options: Any) -> Any:
    """Insert, delete, update, merge and overwrite, each in a version of its own."""
    table = lake.make("t", sample(), configuration=FEED, **options)
    table.delete("id = 1")
    table.update({"v": "9.0"}, predicate="id = 2")
    data = sample(id=[3, 4, 2], p=["a", "y", "b"], v=[0.0, 1.0, 9.0]).slice(0, 2)
    merge(table, data).when_matched_update_all().when_not_matched_insert_all().execute()
    lake.write_deltalake(table, sample(), mode="overwrite")
    return table


EVERYTHING = [
    (0, 1, "insert", 1.5),
    (0, 2, "insert", None),
    (0, 3, "insert", 2.5),
    (1, 1, "delete", 1.5),
    (2, 2, "postimage", 9.0),
    (2, 2, "preimage", None),
    (3, 3, "postimage", 0.0),
    (3, 3, "preimage", 2.5),
    (3, 4, "insert", 1.0),
    (4, 1, "insert", 1.5),
    (4, 2, "delete", 9.0),
    (4, 2, "insert", None),
    (4, 3, "delete", 0.0),
    (4, 3, "insert", 2.5),
    (4, 4, "delete", 1.0),
]


def test_feed_has_the_changes_of_every_version(lake: Lake) -> None:
    table = changed(lake)
    reader = table.load_cdf()
    assert isinstance(reader, RecordBatchReader)
    reader.read_all()
    assert feed(table) == EVERYTHING


def test_feed_has_the_changes_of_a_partitioned_table(lake: Lake) -> None:
    assert feed(changed(lake, partition_by=["p"])) == EVERYTHING


def test_feed_adds_the_commit_columns(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration=FEED)
    schema = pa.schema(table.load_cdf().schema)
    assert schema.names == ["id", "p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert pa.types.is_integer(schema.field("_commit_version").type)
    assert pa.types.is_timestamp(schema.field("_commit_timestamp").type)


def test_commit_timestamp_is_the_time_of_the_commit(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration=FEED)
    (committed_at,) = set(pa.table(table.load_cdf())["_commit_timestamp"].to_pylist())
    written = datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)
    assert abs(committed_at.replace(tzinfo=UTC) - written) < timedelta(seconds=5)


def test_version_range_selects_changes(lake: Lake) -> None:
    table = changed(lake)
    assert feed(table, starting_version=1, ending_version=2) == EVERYTHING[3:6]
    assert feed(table, starting_version=3) == EVERYTHING[6:]
    assert feed(table, ending_version=0) == EVERYTHING[:3]
    assert feed(table, starting_version=1, ending_version=99) == EVERYTHING[3:]


def test_versions_out_of_range_are_rejected_unless_allowed(lake: Lake) -> None:
    table = changed(lake)
    with pytest.raises(DeltaError, match="Invalid table version: 9"):
        table.load_cdf(starting_version=9)
    assert feed(table, starting_version=9, allow_out_of_range=True) == []
    with pytest.raises(DeltaError, match="Start version 3 is greater than end version 1"):
        table.load_cdf(starting_version=3, ending_version=1)


def test_timestamp_range_selects_changes(lake: Lake) -> None:
    table = changed(lake)
    assert feed(table, starting_timestamp="2001-01-01T00:00:00Z") == EVERYTHING
    assert feed(table, ending_timestamp="2201-01-01T00:00:00Z") == EVERYTHING
    with pytest.raises(DeltaError, match="greater than latest commit timestamp"):
        table.load_cdf(starting_timestamp="2201-01-01T00:00:00Z")
    late = {"starting_timestamp": "2201-01-01T00:00:00Z", "allow_out_of_range": True}
    assert feed(table, **late) == []
    with pytest.raises(ValueError, match="invalid"):
        table.load_cdf(starting_timestamp="no time")


def test_columns_option_selects_columns(lake: Lake) -> None:
    table = changed(lake)
    found = pa.table(table.load_cdf(columns=["id", "_change_type"]))
    assert found.column_names == ["id", "_change_type"]
    assert found.num_rows == len(EVERYTHING)
    with pytest.raises(DeltaError, match="zz"):
        table.load_cdf(columns=["zz"])


def test_predicate_filters_changes(lake: Lake) -> None:
    table = changed(lake)
    assert feed(table, predicate="id = 2") == [row for row in EVERYTHING if row[1] == 2]
    halves = feed(table, predicate="id / 2 = 1")  # the division of integers
    assert halves == [row for row in EVERYTHING if row[1] in (2, 3)]
    assert feed(table, predicate="id in (select 2)") == feed(table, predicate="id = 2")
    inserts = feed(table, predicate="_change_type = 'insert' and _commit_version > 0")
    assert inserts == [row for row in EVERYTHING if row[0] and row[2] == "insert"]


def test_load_cdf_without_change_data_feed_raises(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="does not have change data enabled"):
        table.load_cdf()


def test_feed_enabled_later_starts_at_that_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.alter.set_table_properties(FEED)
    assert "changeDataFeed" in lake.features(table)
    lake.write_deltalake(table, sample(), mode="append")
    with pytest.raises(DeltaError, match="version: 0 that does not have change data enabled"):
        table.load_cdf()
    expected = [(2, each["id"], "insert", each["v"]) for each in sample().to_pylist()]
    assert feed(table, starting_version=1) == expected


def test_change_data_files_are_in_their_own_folder(lake: Lake) -> None:
    table = changed(lake)
    assert list((lake.folder(table) / "_change_data").rglob("*.parquet"))
    assert table.count() == 3


def test_feed_of_replace_where_has_only_matching_rows(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration=FEED)
    data = sample(id=[2, 2, 2], v=[7.0, 7.0, 7.0]).slice(0, 1)
    lake.write_deltalake(table, data, mode="overwrite", predicate="id = 2")
    found = feed(table, starting_version=1)
    assert (1, 2, "delete", None) in found
    assert (1, 2, "insert", 7.0) in found
    assert {row[1] for row in found} == {2}


def test_feed_has_the_deletes_of_a_merge(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration=FEED)
    builder = merge(table, sample(id=[1, 2, 7]))
    builder.when_matched_delete("s.id = 1").when_not_matched_by_source_delete().execute()
    assert feed(table, starting_version=1) == [(1, 1, "delete", 1.5), (1, 3, "delete", 2.5)]


def test_changes_of_a_commit_are_in_file_order(lake: Lake) -> None:
    many = 150_000  # several batches in a multithreaded engine
    table = lake.make("t", pa.table({"id": range(many)}), configuration=FEED)
    table.update({"id": "id + 1000000"}, predicate="id % 1000 = 0")
    table.delete("id % 7 = 3")
    checked = [(0, "insert"), (1, "update_preimage"), (2, "delete")]
    # Stock writes the change data of updates with several threads and in no fixed order.
    for version, kind in checked[:1] if lake.system == "stock" else checked:
        found = pa.table(table.load_cdf(version, version))
        ids = [each["id"] for each in found.to_pylist() if each["_change_type"] == kind]
        moved = [each for each in ids if each >= 1_000_000]
        stayed = [each for each in ids if each < 1_000_000]
        assert (moved, stayed) == (sorted(moved), sorted(stayed)), kind


def test_feed_schema_keeps_not_null_columns(lake: Lake) -> None:
    element = pa.field("element", pa.int64(), nullable=False)
    value = pa.field("value", pa.int64(), nullable=False)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("l", pa.list_(element)),
            pa.field("m", pa.map_(pa.string(), value)),
            pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
        ]
    )
    data = pa.table({"id": [1], "l": [[1]], "m": [[("a", 1)]], "s": [{"x": 1}]}, schema)
    table = lake.make("t", data, configuration=FEED)
    found = pa.table(table.load_cdf())
    assert found.select(schema.names).schema == schema
    assert found.select(schema.names).to_pylist() == data.to_pylist()
    other = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    lake.write_deltalake(
        table, pa.table({"id": [2], "n": [2]}, other), mode="overwrite", schema_mode="overwrite"
    )
    if lake.system != "stock":  # stock cannot read the rows without `n`
        changes = pa.table(lake.DeltaTable(lake.uri("t")).load_cdf()).to_pylist()
        assert {(each["id"], each["n"]) for each in changes} == {(1, None), (2, 2)}


def test_timestamp_without_a_full_offset_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration=FEED)
    for text in ("2023-01-01T00:00:00+08", "2023-01-01T00:00:00-08", "2023-01-01T00:00:00"):
        for call in (
            table.load_as_version,
            table.restore,
            lambda text: table.load_cdf(starting_timestamp=text),
        ):
            with pytest.raises(ValueError, match="premature end of input"):
                call(text)
    for text in ("2023-01-01T00:00:00+08:00", "2023-01-01t00:00:00z", "2023-01-01 00:00:00Z"):
        table.load_as_version(text)
        assert pa.table(table.load_cdf(starting_timestamp=text)).num_rows == 3
