"""Publishing to a bucket is in order, exactly once, and never overwrites a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltasql.config import StorageSettings
from deltasql.mirror.log.encode import commit_bytes, commit_file
from deltasql.storage import open_storage
from tests.commit.support import file
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.storage import Storage
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def mirrored(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as catalog:
        catalog.create_table("t", SCHEMA)
        yield catalog


def storage_of(catalog: Catalog, location: str | None = None) -> Storage:
    return open_storage(location or catalog.table("t").location, catalog.config.storage)


def append(catalog: Catalog, *names: str) -> None:
    for name in names:
        with catalog.begin() as tx:
            tx.stage_table("t", [file(name)])


def test_log_in_a_bucket_equals_sql(mirrored: Catalog, s3_options: dict[str, str]) -> None:
    append(mirrored, *map(str, range(11)))
    table, storage = mirrored.table("t"), storage_of(mirrored)
    with mirrored.store.session() as session:
        for version in range(12):
            wanted = commit_bytes(session, table.row.table_id, version)
            assert storage.read(commit_file(version)) == wanted
    stock = DeltaTable(table.location, storage_options=s3_options)
    assert (stock.version(), len(stock.file_uris())) == (11, 11)


def test_foreign_commit_in_a_bucket_quarantines_the_mirror(mirrored: Catalog) -> None:
    foreign = b'{"commitInfo":{"operation":"WRITE"}}\n'
    assert storage_of(mirrored).put_if_absent(commit_file(1), foreign)
    append(mirrored, "a")
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version) == ("QUARANTINED", 0)
    assert storage_of(mirrored).read(commit_file(1)) == foreign


def test_unreachable_bucket_fails_no_commit(
    mirrored: Catalog, sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    nowhere = {**s3_options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    settings = {"options": nowhere, "retries": 0, "timeout_s": 1}
    with open_mirrored(sqlite_uri, s3_location, storage=settings) as cut_off:
        append(cut_off, "a", "b")
        [status] = cut_off.mirror.status("t")
        assert (status.state, status.version, status.published_version) == ("FAILED", 2, 0)
        assert s3_options["AWS_SECRET_ACCESS_KEY"] not in str(status)
    append(mirrored, "c")
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version) == ("ACTIVE", 3)


def test_table_on_disk_is_replicated_to_a_bucket(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    settings = {"options": s3_options}
    with open_mirrored(sqlite_uri, tmp_path / "lake", storage=settings) as catalog:
        catalog.create_table("t", SCHEMA)
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2, 3]}))
        catalog.mirror.add_target("t", "bucket", f"{s3_location}/replica")
        assert catalog.mirror.run(once=True) == 2
        here = storage_of(catalog)
        there = open_storage(f"{s3_location}/replica", StorageSettings(options=s3_options))
        for version in (0, 1):
            name = commit_file(version)
            assert here.read(name) == there.read(name)
    stock = DeltaTable(f"{s3_location}/replica", storage_options=s3_options)
    assert stock.to_pyarrow_table().sort_by("id")["id"].to_pylist() == [1, 2, 3]
