"""A stream hands out a snapshot, then version after version: each row once, in every batch size."""

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
    """Append rows: a file for the even ones and one for the odd ones."""
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": numbers, "part": [n % 2 for n in numbers]}, SCHEMA))


def delete(lake: Catalog, predicate: str) -> None:
    with lake.begin() as tx:
        tx.delete("t", predicate)


def test_a_stream_begins_with_the_snapshot_and_goes_on_with_what_follows(lake: Catalog) -> None:
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
def test_no_batch_has_more_files_than_asked_for_and_no_row_is_lost(
    lake: Catalog, most: int
) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    stream = Stream(uri(lake), maxFilesPerTrigger=most)
    append(lake, 5, 6)
    append(lake, 7)
    batches = stream.ids()
    assert sorted(chain(*batches)) == [1, 2, 3, 4, 5, 6, 7]
    assert max(map(len, batches)) == min(most, 7)


def test_a_file_larger_than_a_batch_still_comes(lake: Catalog) -> None:
    append(lake, 1, 2, 3)
    assert sorted(Stream(uri(lake), maxBytesPerTrigger=1).ids()) == [[1, 3], [2]]


def test_all_that_there_is_comes_at_once_when_spark_asks_for_it(lake: Catalog) -> None:
    append(lake, 1, 2)
    append(lake, 3)
    rows = Stream(uri(lake), maxFilesPerTrigger=1).batch(ReadAllAvailable())
    assert sorted(row["id"] for row in rows or []) == [1, 2, 3]


def test_what_is_there_when_a_query_begins_is_its_end(lake: Catalog) -> None:
    append(lake, 1)
    stream = Stream(uri(lake))
    stream.reader.prepareForTriggerAvailableNow()
    append(lake, 2)
    assert stream.ids() == [[1]]


def test_a_batch_that_is_repeated_after_a_restart_has_the_same_rows(lake: Catalog) -> None:
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
def test_a_stream_can_begin_at_a_version(
    lake: Catalog, begin: int | str, expected: list[int]
) -> None:
    append(lake, 1, 2)
    append(lake, 3)
    append(lake, 4)
    stream = Stream(uri(lake), startingVersion=begin)
    assert list(chain(*stream.ids())) == expected
    append(lake, 5)
    assert stream.ids() == [[5]]


def test_a_stream_can_begin_at_a_moment(lake: Catalog) -> None:
    append(lake, 1)
    append(lake, 2)
    at = lake.table("t").snapshot().committed_at.isoformat()
    assert Stream(uri(lake), startingTimestamp=at).ids() == [[2]]
    assert Stream(uri(lake), startingTimestamp="2020-01-01").ids() == [[1, 2]]
    with pytest.raises(VersionNotFoundError):
        Stream(uri(lake), startingTimestamp="2999-01-01")


def test_deletes_are_refused_or_left_out(lake: Catalog) -> None:
    append(lake, 1, 2)
    delete(lake, "part = 1")
    append(lake, 3)
    stream = Stream(uri(lake), startingVersion=1)
    with pytest.raises(TxnLogEngineError, match="version 2 deleted rows"):
        stream.batch()
    for option in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        assert Stream(uri(lake), startingVersion=1, **{option: True}).ids() == [[1, 2, 3]]


def test_changes_are_refused_or_left_out_or_come_again(lake: Catalog) -> None:
    append(lake, 1, 3)
    delete(lake, "id = 1")
    append(lake, 4)
    for options in ({}, {"ignoreDeletes": True}):
        with pytest.raises(TxnLogEngineError, match="version 2 changed rows"):
            Stream(uri(lake), startingVersion=1, **options).batch()
    assert Stream(uri(lake), startingVersion=1, ignoreChanges=True).ids() == [[1, 3, 3, 4]]
    assert Stream(uri(lake), startingVersion=1, skipChangeCommits=True).ids() == [[1, 3, 4]]


def test_files_that_are_only_put_together_are_no_change(lake: Catalog) -> None:
    append(lake, 1)
    append(lake, 3)
    with lake.begin() as tx:
        tx.optimize("t")
    append(lake, 5)
    assert Stream(uri(lake), startingVersion=1).ids() == [[1, 3, 5]]


def test_versions_without_rows_make_no_batch(lake: Catalog) -> None:
    append(lake, 1, 3)
    stream = Stream(uri(lake), skipChangeCommits=True)
    assert stream.ids() == [[1, 3]]
    delete(lake, "id = 1")
    delete(lake, "id = 3")
    assert stream.batch() is None
    append(lake, 5)
    assert stream.ids() == [[5]]


def told(rows: list[dict[str, Any]] | None) -> list[tuple[int, str, int]]:
    return sorted((r["_commit_version"], r["_change_type"], r["id"]) for r in rows or [])


@pytest.mark.parametrize("keeps_change_data", [False, True])
def test_a_change_feed_tells_deletes_and_updates(lake: Catalog, keeps_change_data: bool) -> None:
    if keeps_change_data:
        lake.create_table(
            "f", SCHEMA, properties={"delta.enableChangeDataFeed": "true"}, partition_by=["part"]
        )
        lake.drop("t")
        lake.rename("f", "t")
    append(lake, 1, 2, 3)
    stream = Stream(uri(lake), readChangeFeed=True)
    first = lake.table("t").version()
    assert told(stream.batch()) == [(first, "insert", n) for n in (1, 2, 3)]
    delete(lake, "id = 1")
    append(lake, 5)
    assert told(stream.batch()) == [(first + 1, "delete", 1), (first + 2, "insert", 5)]
    assert stream.batch() is None


def test_a_feed_takes_whole_versions(lake: Catalog) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    stream = Stream(uri(lake), readChangeFeed=True, startingVersion=1, maxFilesPerTrigger=1)
    assert stream.ids() == [[1, 2], [3, 4]]


def test_new_columns_end_a_stream_which_goes_on_when_it_is_loaded_again(lake: Catalog) -> None:
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


def test_new_columns_after_versions_without_rows_end_a_stream(lake: Catalog) -> None:
    append(lake, 1)
    stream = Stream(uri(lake), ignoreDeletes=True)
    stream.batch()
    delete(lake, "id = 1")
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [3], "part": [1], "more": ["x"]}), schema_mode="merge")
    with pytest.raises(TxnLogSchemaError, match="version 3"):
        stream.batch()


def test_a_checkpoint_of_another_table_is_refused(lake: Catalog) -> None:
    append(lake, 1)
    offset = Stream(uri(lake)).offset
    lake.drop("t")
    lake.create_table("t", SCHEMA)
    with pytest.raises(TableChangedError):
        Stream(uri(lake), offset).batch()


def test_a_stream_has_no_version_to_stay_at(lake: Catalog) -> None:
    with pytest.raises(TxnLogConfigError, match="startingVersion"):
        Stream(uri(lake), versionAsOf=0)


def test_versions_whose_files_are_gone_are_named(lake: Catalog, tmp_path: Path) -> None:
    append(lake, 1)
    stream = Stream(uri(lake), ignoreDeletes=True)
    delete(lake, "id = 1")
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(VersionNotFoundError, match="files are gone"):
        stream.batch()
