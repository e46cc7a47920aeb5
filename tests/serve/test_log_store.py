"""Commits that another Delta writer sends to the service are ratified once, or refused by name."""

from __future__ import annotations

import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltasql.mirror.log.same_commit import same_content
from deltasql.phases import hooked
from deltasql.serve import Service
from tests.mirror.support import commit_path, forget_published, open_mirrored, published_versions
from tests.serve.client import Client, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases
NEXT = 2
"""The next version of the table in these tests."""


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as opened:
        opened.create_table("t", pa.schema([("id", pa.int64()), ("day", pa.string())]))
        with opened.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2], "day": ["a", "b"]}))
        yield opened


@pytest.fixture
def client(lake: Catalog) -> Iterator[Client]:
    with Service(lake) as served:
        yield Client(served)


def commit_text(path: str | None = None, **info: Any) -> str:
    """Return a commit of one file as delta-spark writes it."""
    name = path or f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    now = 4_000_000_000_000
    lines = [
        {
            "commitInfo": {
                "inCommitTimestamp": now,
                "timestamp": now - 5,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": "[]"},
                "readVersion": 1,
                "isolationLevel": "Serializable",
                "isBlindAppend": True,
                "operationMetrics": {"numFiles": "1"},
                "userMetadata": "nightly",
                "tags": {"noRowsCopied": "true"},
                "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
                "txnId": str(uuid.uuid4()),
                **info,
            }
        },
        {"txn": {"appId": "query", "version": 7, "lastUpdated": 5}},
        {
            "add": {
                "path": name,
                "partitionValues": {},
                "size": 700,
                "modificationTime": 1_700_000_000_000,
                "dataChange": True,
                "stats": '{"numRecords":1,"minValues":{"id":3},"maxValues":{"id":3}}',
                "tags": {"INSERTION_TIME": "1"},
            }
        },
    ]
    return "\n".join(json.dumps(line) for line in lines)


def send(client: Client, lake: Catalog, text: str, version: int = NEXT) -> bool:
    """Send a commit of the table; return whether the service committed it."""
    found = client.call(
        "log_commit", location=lake.table("t").location, version=version, actions=text
    )
    return bool(found["registered"])


def test_commit_is_ratified_and_published_unchanged(client: Client, lake: Catalog) -> None:
    text = commit_text()
    assert send(client, lake, text)
    table = lake.table("t")
    assert table.version() == NEXT
    assert same_content(commit_path(table.location, NEXT).read_bytes(), text.encode())
    info = table.history(limit=1)[0].info
    sent = json.loads(text.splitlines()[0])["commitInfo"]
    assert (info.txn_id, info.user_metadata) == (sent["txnId"], "nightly")
    assert (info.timestamp, info.in_commit_timestamp) == (
        sent["timestamp"],
        sent["inCommitTimestamp"],
    )
    assert lake.mirror.verify("t", versions="all")[0].differences == []


def test_repeated_request_commits_once(client: Client, lake: Catalog) -> None:
    text = commit_text()
    assert send(client, lake, text)
    assert send(client, lake, text)
    assert lake.table("t").version() == NEXT
    with pytest.raises(ServiceError, match="is already version 2") as refused:
        send(client, lake, text, NEXT + 1)
    assert "VersionTakenError" not in refused.value.types


def test_repeated_request_without_transaction_id_commits_once(
    client: Client, lake: Catalog
) -> None:
    lines = [json.loads(line) for line in commit_text().splitlines()]
    del lines[0]["commitInfo"]["txnId"]
    text = "\n".join(json.dumps(line) for line in lines)
    assert send(client, lake, text)
    assert send(client, lake, text)
    assert lake.table("t").version() == NEXT


def test_second_commit_at_same_version_gets_version_taken(client: Client, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [3], "day": ["c"]}))
    with pytest.raises(ServiceError) as taken:
        send(client, lake, commit_text())
    assert "VersionTakenError" in taken.value.types
    assert send(client, lake, commit_text(), NEXT + 1)


def test_only_one_of_many_concurrent_commits_gets_a_version(client: Client, lake: Catalog) -> None:
    outcomes: list[bool | list[str]] = []
    barrier = threading.Barrier(6)

    def commit() -> None:
        text = commit_text()
        barrier.wait()
        try:
            outcomes.append(send(client, lake, text))
        except ServiceError as error:
            outcomes.append(error.types)

    threads = [threading.Thread(target=commit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1
    assert all(each is True or "VersionTakenError" in each for each in outcomes)
    assert lake.table("t").version() == NEXT


def test_unpublished_versions_are_published_on_request(client: Client, lake: Catalog) -> None:
    table = lake.table("t")
    forget_published(lake.store, table.row, from_version=1)
    commit_path(table.location, 1).unlink()
    lake.mirror.publisher.forget()
    assert published_versions(table.location) == [0]
    assert client.call("log_publish", location=table.location) == {"registered": True}
    assert published_versions(table.location) == [0, 1]


def test_next_request_publishes_a_commit_that_could_not_be_published(
    client: Client, lake: Catalog
) -> None:
    text = commit_text()

    def fail(phase: str) -> None:
        if phase == "publishing":
            raise OSError("no space left")

    with hooked(fail), pytest.raises(ServiceError, match="is committed, but it could not be"):
        send(client, lake, text)
    location = lake.table("t").location
    assert (lake.table("t").version(), published_versions(location)) == (NEXT, [0, 1])
    assert send(client, lake, text)
    assert (lake.table("t").version(), published_versions(location)) == (NEXT, [0, 1, NEXT])


def test_followed_dropped_and_unknown_tables_are_reported_as_not_registered(
    client: Client, lake: Catalog, tmp_path: Path
) -> None:
    followed = str(tmp_path / "followed")
    write_deltalake(followed, pa.table({"id": [1]}))
    lake.follow(followed)
    dropped = lake.create_table("gone", pa.schema([("id", pa.int64())])).location
    lake.drop("gone")
    for location in (followed, dropped, str(tmp_path / "other"), "hdfs://host/t", "s3://lake/t"):
        found = client.call("log_commit", location=location, version=9, actions=commit_text())
        assert found == {"registered": False}, location
        assert client.call("log_publish", location=location) == {"registered": False}, location


def test_table_is_found_by_its_location_as_hadoop_spells_it(
    client: Client, lake: Catalog, tmp_path: Path
) -> None:
    folder = str(tmp_path / "odd 50% name")
    location = lake.create_table("odd", pa.schema([("id", pa.int64())]), location=folder).location
    sent = "file:" + location.replace("%", "%25").replace(" ", "%20")
    assert client.call("log_publish", location=sent) == {"registered": True}


def test_commit_after_a_foreign_commit_is_refused(client: Client, lake: Catalog) -> None:
    path = commit_path(lake.table("t").location, NEXT)
    path.write_text(commit_text())
    for version in (NEXT, NEXT + 1):
        with pytest.raises(ServiceError, match="was written without the database") as refused:
            send(client, lake, commit_text(), version)
        assert "MirrorDivergedError" in refused.value.types
    assert lake.table("t").version() == NEXT - 1


def test_invalid_and_unsupported_commits_are_refused_with_their_error_type(
    client: Client, lake: Catalog
) -> None:
    features = ["inCommitTimestamp", "futureThing", "appendOnly", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    refused = {
        "UnsupportedFeatureError": f"{commit_text()}\n{json.dumps({'protocol': protocol})}",
        "InvalidActionError": commit_text(inCommitTimestamp=None),
        "LogParseError": '{"add": 1}',
        "VersionNotFoundError": commit_text(),
    }
    for kind, text in refused.items():
        version = 9 if kind == "VersionNotFoundError" else NEXT
        with pytest.raises(ServiceError) as error:
            send(client, lake, text, version)
        assert kind in error.value.types
    assert lake.table("t").version() == NEXT - 1
    assert published_versions(lake.table("t").location) == [0, 1]


def test_next_commit_of_deltasql_follows_an_external_commit(client: Client, lake: Catalog) -> None:
    assert send(client, lake, commit_text())
    before = lake.table("t").snapshot().committed_at_ms
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [3], "day": ["c"]}))
    snapshot = lake.table("t").snapshot()
    assert (snapshot.version, snapshot.committed_at_ms > before) == (NEXT + 1, True)
