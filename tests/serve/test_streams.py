"""Streams through the service: the same batches as the Python source, and each written once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.phases import hooked
from deltasql.serve import Service
from deltasql.store.leases import is_held
from tests.each import check_each
from tests.mirror.support import open_mirrored
from tests.serve.client import Client, ServiceError, write_file
from tests.spark.in_process import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])
STREAM = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        opened.create_table("t", SCHEMA, partition_by=["part"])
        yield opened


@pytest.fixture
def client(lake: Catalog) -> Iterator[Client]:
    with Service(lake) as served:
        yield Client(served)


def append(lake: Catalog, *numbers: int) -> None:
    """Append rows: one file for the even ids and one for the odd ids."""
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": numbers, "part": [n % 2 for n in numbers]}, SCHEMA))


class ServedStream:
    """A stream as Spark's catalog reads it; its offset is the content of a checkpoint."""

    def __init__(self, client: Client, **options: object) -> None:
        table = client.call("table", namespace="default", name="t")
        self.client = client
        self.request = {"namespace": "default", "name": "t", "id": table["id"]}
        self.request["version"] = table["version"]
        self.request["options"] = {name: str(value) for name, value in options.items()}
        self.offset = client.call("stream_start", **self.request)["offset"]

    def batch(self) -> list[int] | None:
        """Return the ids of the next batch, or None if there are no new rows."""
        end = self.client.call("stream_next", **self.request, start=self.offset)["offset"]
        if end == self.offset:
            return None
        start, self.offset = self.offset, end
        lines = self.client.lines("stream_files", **self.request, start=start, end=end)
        files = [file for line in lines for file in line.get("files", ())]
        assert lines[-1] == {"end": len(files)}
        paths = [unquote(urlsplit(file[0]).path) for file in files]
        return sorted(n for path in paths for n in pq.read_table(path)["id"].to_pylist())


def test_batches_and_offsets_are_those_of_the_python_source(lake: Catalog, client: Client) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    with lake.begin() as tx:
        tx.delete("t", "part = 1")
    append(lake, 5, 6, 7)
    uri = lake.uri.with_table("t").to_string()

    def compare(options: dict[str, object]) -> None:
        stream, expected = ServedStream(client, **options), Stream(uri, **options)
        assert stream.offset == expected.offset
        while (rows := expected.batch()) is not None:
            assert stream.batch() == sorted(row["id"] for row in rows)
            assert stream.offset == expected.offset
        assert stream.batch() is None

    ignoring = {"ignoreDeletes": "true"}
    check_each(
        [
            {},
            {"maxFilesPerTrigger": 1},
            {"maxBytesPerTrigger": 1},
            {"startingVersion": 1, **ignoring},
            {"startingVersion": 2, "maxFilesPerTrigger": 3, "skipChangeCommits": "true"},
            {"startingVersion": "latest"},
            {"startingTimestamp": "2020-01-01", **ignoring},
        ],
        compare,
    )


def test_error_names_a_wrong_option_of_a_stream(lake: Catalog, client: Client) -> None:
    append(lake, 1)
    for options, message in (
        ({"maxFiles": 1}, "the stream of t has no option 'maxFiles'"),
        ({"startingVersion": "x"}, "startingVersion of the stream of t cannot be 'x'"),
        ({"versionAsOf": 1}, "a stream does not accept versionAsOf"),
        ({"readChangeFeed": "true"}, "cannot read the change feed"),
    ):
        with pytest.raises(ServiceError, match=message):
            ServedStream(client, **options)
    stream = ServedStream(client)
    stream.offset = {"offset": 7}
    with pytest.raises(ServiceError, match="does not belong to a stream of t: its offset is"):
        stream.batch()


def commit(client: Client, ids: list[int], batch: int, **body: Any) -> int | None:
    """Write a batch of the query `q` as Spark's catalog does, and return its version."""
    table = client.call("table", namespace="default", name="t")
    begun = client.call(
        "write_begin", namespace="default", name="t", id=table["id"], stream={"schema": STREAM}
    )
    assert begun["positions"] == [0, None]
    body |= {"namespace": "default", "name": "t", "txn_id": begun["txn_id"]}
    body["files"] = [{**write_file(begun, pa.table({"id": [n]})), "partition": [None]} for n in ids]
    body["stream"] = {"query_id": "q", "batch": batch}
    found: int | None = client.call("write_commit", **body)["version"]
    return found


def ids(lake: Catalog) -> list[int]:
    with lake.begin() as tx:
        return sorted(tx.read("t")["id"].to_pylist())


def test_repeated_batch_is_committed_once(lake: Catalog, client: Client, tmp_path: Path) -> None:
    assert commit(client, [1, 2], 0) == 1
    assert commit(client, [1, 2], 0) is None
    assert commit(client, [3], 1) == 2
    assert commit(client, [], 2) is None
    assert (ids(lake), lake.table("t").version()) == ([1, 2, 3], 2)
    assert lake.table("t").snapshot().transaction_version("q") == 1
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 3  # a skipped batch leaves none
    assert commit(client, [9], 3, overwrite={}) == 3
    assert commit(client, [9], 3, overwrite={}) is None
    assert ids(lake) == [9]


def test_same_batch_of_two_drivers_is_committed_once(lake: Catalog, client: Client) -> None:
    names = {"namespace": "default", "name": "t"}
    begun = client.call("write_begin", **names, stream={"schema": STREAM})
    assert commit(client, [1], 0) == 1
    late = {**write_file(begun, pa.table({"id": [1]})), "partition": [None]}
    body = {"txn_id": begun["txn_id"], "files": [late], "stream": {"query_id": "q", "batch": 0}}
    assert client.call("write_commit", **names, **body) == {"version": None}
    assert ids(lake) == [1]


def test_batch_that_replaces_all_rows_replaces_the_latest_version(
    lake: Catalog, client: Client
) -> None:
    """Other writers commit while the batch is computed."""
    names = {"namespace": "default", "name": "t"}
    append(lake, 1, 2)

    def commit_after(change: Callable[[], object], batch: int) -> dict[str, Any]:
        begun = client.call("write_begin", **names, stream={"schema": STREAM})
        file = {**write_file(begun, pa.table({"id": [10 + batch]})), "partition": [None]}
        change()
        stream = {"query_id": "q", "batch": batch}
        body = {"txn_id": begun["txn_id"], "files": [file], "overwrite": {}, "stream": stream}
        return client.call("write_commit", **names, **body)

    assert commit_after(lambda: append(lake, 3), 0) == {"version": 3}
    assert ids(lake) == [10]
    assert commit_after(lambda: lake.sql("DELETE FROM t"), 1) == {"version": 5}
    assert ids(lake) == [11]
    with pytest.raises(ServiceError) as changed:
        commit_after(lambda: lake.sql("ALTER TABLE t ADD COLUMNS (more STRING)"), 2)
    assert "MetadataChangedError" in changed.value.types
    assert ids(lake) == [11]


def test_auto_compaction_gives_up_during_a_batch_that_replaces_all_rows(
    lake: Catalog, client: Client
) -> None:
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')")
    held: list[bool] = []

    def look(phase: str) -> None:
        if phase == "staged":
            held.append(is_held(lake.store.query, lake.table("t").row.table_id))

    with hooked(look):
        commit(client, [1], 0)
        commit(client, [2], 1, overwrite={})
    assert held == [False, True]


def test_error_names_a_stream_column_or_option_that_the_table_does_not_accept(
    client: Client,
) -> None:
    def begin(field: dict[str, Any], **options: str) -> None:
        given = {"nullable": True, "metadata": {}, **field}
        schema = json.dumps({"type": "struct", "fields": [given]})
        stream = {"schema": schema, "options": options}
        client.call("write_begin", namespace="default", name="t", stream=stream)

    for field, options, message in (
        ({"name": "idd", "type": "long"}, {}, "a column 'idd', which t does not have"),
        (
            {"name": "id", "type": "string"},
            {},
            "'id' of the stream into t is string, not long",
        ),
        ({"name": "id", "type": "long"}, {"mergeSchema": "true"}, "does not accept mergeSchema"),
    ):
        with pytest.raises(ServiceError, match=message):
            begin(field, **options)
