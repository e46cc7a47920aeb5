"""A stream returns a snapshot, then each version: every row once, for every batch size."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from deltasql.exceptions import (
    TableChangedError,
    TxnLogConfigError,
    TxnLogEngineError,
    TxnLogSchemaError,
    VersionNotFoundError,
)
from tests.mirror.support import open_mirrored
from tests.spark.in_process import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        opened.create_table("t", SCHEMA, partition_by=["part"])
        yield opened


def uri(lake: Catalog) -> str:
    return lake.uri.with_table("t").to_string()


def append(lake: Catalog, *numbers: int) -> None:
    """Append rows: one file for the even ids and one for the odd ids."""
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": numbers, "part": [n % 2 for n in numbers]}, SCHEMA))


def delete(lake: Catalog, predicate: str) -> None:
    with lake.begin() as tx:
        tx.delete("t", predicate)


def test_stream_starts_with_the_snapshot_and_continues_with_new_versions(lake: Catalog) -> None:
    append(lake, 1, 2)
    delete(lake, "id = 1")
    append(lake, 3)
    stream = Stream(uri(lake))
    append(lake, 4, 5)
    assert stream.ids() == [[2, 3, 4, 5]]
    append(lake, 6)
    append(lake, 7)
    assert stream.ids() == [[6, 7]]
    assert stream.batch() is None


@pytest.mark.parametrize("most", [1, 2, 3, 1000])
def test_max_files_per_trigger_limits_batches_and_loses_no_rows(lake: Catalog, most: int) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    stream = Stream(uri(lake), maxFilesPerTrigger=most)
    append(lake, 5, 6)
    append(lake, 7)
    batches = stream.ids()
    assert sorted(chain(*batches)) == [1, 2, 3, 4, 5, 6, 7]
    assert max(map(len, batches)) == min(most, 7)


def test_file_larger_than_max_bytes_per_trigger_is_read(lake: Catalog) -> None:
    append(lake, 1, 2, 3)
    assert sorted(Stream(uri(lake), maxBytesPerTrigger=1).ids()) == [[1, 3], [2]]


def test_read_all_available_ignores_the_batch_limit(lake: Catalog) -> None:
    append(lake, 1, 2)
    append(lake, 3)
    rows = Stream(uri(lake), maxFilesPerTrigger=1).batch(ReadAllAvailable())
    assert sorted(row["id"] for row in rows or []) == [1, 2, 3]


def test_available_now_stops_at_the_version_at_query_start(lake: Catalog) -> None:
    append(lake, 1)
    stream = Stream(uri(lake))
    stream.reader.prepareForTriggerAvailableNow()
    append(lake, 2)
    assert stream.ids() == [[1]]


def test_repeated_batch_has_the_same_rows_after_a_restart(lake: Catalog) -> None:
    append(lake, 1, 2)
    stream = Stream(uri(lake), maxFilesPerTrigger=1)
    append(lake, 3, 4)
    steps = [stream.offset]
    batches = []
    while (rows := stream.batch()) is not None:
        batches.append(rows)
        steps.append(stream.offset)
    delete(lake, "id > 0")
    restarted = Stream(uri(lake), steps[-1], maxFilesPerTrigger=7)
    for rows, start, end in zip(batches, steps, steps[1:], strict=False):
        assert restarted.between(start, end) == rows


@pytest.mark.parametrize(
    ("begin", "expected"), [(1, [1, 2, 3, 4]), (2, [3, 4]), (4, []), ("latest", [])]
)
def test_stream_starts_at_a_version(lake: Catalog, begin: int | str, expected: list[int]) -> None:
    append(lake, 1, 2)
    append(lake, 3)
    append(lake, 4)
    stream = Stream(uri(lake), startingVersion=begin)
    assert list(chain(*stream.ids())) == expected
    append(lake, 5)
    assert stream.ids() == [[5]]


def test_stream_starts_at_a_timestamp(lake: Catalog) -> None:
    append(lake, 1)
    append(lake, 2)
    at = lake.table("t").snapshot().committed_at.isoformat()
    assert Stream(uri(lake), startingTimestamp=at).ids() == [[2]]
    assert Stream(uri(lake), startingTimestamp="2020-01-01").ids() == [[1, 2]]
    with pytest.raises(VersionNotFoundError):
        Stream(uri(lake), startingTimestamp="2999-01-01")


def test_stream_rejects_or_ignores_deletes(lake: Catalog) -> None:
    append(lake, 1, 2)
    delete(lake, "part = 1")
    append(lake, 3)
    stream = Stream(uri(lake), startingVersion=1)
    with pytest.raises(TxnLogEngineError, match="version 2 deleted rows"):
        stream.batch()
    for option in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        assert Stream(uri(lake), startingVersion=1, **{option: True}).ids() == [[1, 2, 3]]


def test_stream_rejects_skips_or_repeats_changed_rows(lake: Catalog) -> None:
    append(lake, 1, 3)
    delete(lake, "id = 1")
    append(lake, 4)
    for options in ({}, {"ignoreDeletes": True}):
        with pytest.raises(TxnLogEngineError, match="version 2 changed rows"):
            Stream(uri(lake), startingVersion=1, **options).batch()
    assert Stream(uri(lake), startingVersion=1, ignoreChanges=True).ids() == [[1, 3, 3, 4]]
    assert Stream(uri(lake), startingVersion=1, skipChangeCommits=True).ids() == [[1, 3, 4]]


def test_stream_ignores_compactions(lake: Catalog) -> None:
    append(lake, 1)
    append(lake, 3)
    with lake.begin() as tx:
        tx.optimize("t")
    append(lake, 5)
    assert Stream(uri(lake), startingVersion=1).ids() == [[1, 3, 5]]


def test_versions_without_rows_give_no_batch(lake: Catalog) -> None:
    append(lake, 1, 3)
    stream = Stream(uri(lake), skipChangeCommits=True)
    assert stream.ids() == [[1, 3]]
    delete(lake, "id = 1")
    delete(lake, "id = 3")
    assert stream.batch() is None
    append(lake, 5)
    assert stream.ids() == [[5]]


def changes_in(rows: list[dict[str, Any]] | None) -> list[tuple[int, str, int]]:
    return sorted((r["_commit_version"], r["_change_type"], r["id"]) for r in rows or [])


@pytest.mark.parametrize("keeps_change_data", [False, True])
def test_change_feed_stream_returns_deletes_and_inserts(
    lake: Catalog, keeps_change_data: bool
) -> None:
    if keeps_change_data:
        lake.create_table(
            "f", SCHEMA, properties={"delta.enableChangeDataFeed": "true"}, partition_by=["part"]
        )
        lake.drop("t")
        lake.rename("f", "t")
    append(lake, 1, 2, 3)
    stream = Stream(uri(lake), readChangeFeed=True)
    first = lake.table("t").version()
    assert changes_in(stream.batch()) == [(first, "insert", n) for n in (1, 2, 3)]
    delete(lake, "id = 1")
    append(lake, 5)
    assert changes_in(stream.batch()) == [(first + 1, "delete", 1), (first + 2, "insert", 5)]
    assert stream.batch() is None


def test_change_feed_batches_contain_whole_versions(lake: Catalog) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    stream = Stream(uri(lake), readChangeFeed=True, startingVersion=1, maxFilesPerTrigger=1)
    assert stream.ids() == [[1, 2], [3, 4]]


def test_schema_change_stops_a_stream_until_it_is_reloaded(lake: Catalog) -> None:
    append(lake, 1)
    stream = Stream(uri(lake))
    append(lake, 2)
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [3], "part": [1], "more": ["x"]}), schema_mode="merge")
    assert [row["id"] for row in stream.batch() or []] == [1, 2]
    with pytest.raises(TxnLogSchemaError, match="version 3"):
        stream.batch()
    again = Stream(uri(lake), stream.offset)
    assert again.batch() == [{"id": 3, "part": 1, "more": "x"}]


def test_schema_change_before_the_start_stops_a_stream(lake: Catalog) -> None:
    append(lake, 1)
    for options in ({}, {"startingVersion": "latest"}):
        stream = Stream(uri(lake), **options)
        more = pa.table({"id": [3], "part": [1], f"more{lake.table('t').version()}": ["x"]})
        with lake.begin() as tx:
            tx.write("t", more, schema_mode="merge")
        stream.offset = stream.reader.initialOffset()  # Spark asks for it when a query starts
        with lake.begin() as tx:
            tx.write("t", more, schema_mode="merge")
        with pytest.raises(TxnLogSchemaError, match="changed the columns"):
            stream.batch()


def test_schema_change_after_versions_without_rows_stops_a_stream(lake: Catalog) -> None:
    append(lake, 1)
    stream = Stream(uri(lake), ignoreDeletes=True)
    stream.batch()
    delete(lake, "id = 1")
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [3], "part": [1], "more": ["x"]}), schema_mode="merge")
    with pytest.raises(TxnLogSchemaError, match="version 3"):
        stream.batch()


def test_stream_for_older_pyspark_returns_every_row_once(lake: Catalog) -> None:
    append(lake, 1, 2)
    stream = Stream(uri(lake)).older()
    assert stream.ids() == [[1, 2]]
    append(lake, 3)
    append(lake, 4, 5)
    assert stream.ids() == [[3, 4, 5]]
    restarted = Stream(uri(lake), stream.offset).older()
    assert restarted.batch() is None
    append(lake, 6)
    assert restarted.ids() == [[6]]


def test_stream_for_older_pyspark_stops_at_a_schema_change(lake: Catalog) -> None:
    append(lake, 1)
    idle, stream = Stream(uri(lake)).older(), Stream(uri(lake)).older()
    assert idle.batch() is not None
    append(lake, 2)
    assert idle.ids() == [[2]]
    with lake.begin() as tx:
        more = SCHEMA.append(pa.field("more", pa.int64()))
        tx.write("t", pa.table({"id": [3], "part": [1], "more": [0]}, more), schema_mode="merge")
    batch = stream.batch()
    assert batch is not None
    assert sorted(row["id"] for row in batch) == [1, 2]
    assert idle.batch() is None
    for each in (stream, idle):
        with pytest.raises(TxnLogSchemaError, match="changed the columns"):
            each.batch()
    assert Stream(uri(lake), stream.offset).older().ids() == [[3]]


def test_stream_for_older_pyspark_rejects_batch_limits_and_other_tables(lake: Catalog) -> None:
    append(lake, 1)
    for limit in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(TxnLogConfigError, match=r"needs PySpark 4\.2"):
            Stream(uri(lake), **{limit: 5}).older()
    offset = Stream(uri(lake)).offset
    lake.drop("t")
    lake.create_table("t", SCHEMA, location=f"{lake.config.table.data_root}/other")
    with pytest.raises(TableChangedError, match="an earlier table"):
        Stream(uri(lake), offset).older().batch()


def test_checkpoint_of_another_table_is_rejected(lake: Catalog) -> None:
    append(lake, 1)
    offset = Stream(uri(lake)).offset
    lake.drop("t")
    lake.create_table("t", SCHEMA)
    with pytest.raises(TableChangedError):
        Stream(uri(lake), offset).batch()


def test_stream_rejects_version_as_of(lake: Catalog) -> None:
    with pytest.raises(TxnLogConfigError, match="startingVersion"):
        Stream(uri(lake), versionAsOf=0)


def test_stream_error_names_versions_with_deleted_files(lake: Catalog, tmp_path: Path) -> None:
    append(lake, 1)
    stream = Stream(uri(lake), ignoreDeletes=True)
    delete(lake, "id = 1")
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(VersionNotFoundError, match="files are missing"):
        stream.batch()
