"""Tables in a bucket, written by transactions and read by deltalake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltasql
from deltasql.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.config import StorageSettings
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "place": ["a b", "50% off", "größe/東京", "x=y&z?#", None, "a+b", "%20", "'\"\\"],
    }
)


@pytest.fixture
def catalog(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> Iterator[Catalog]:
    """A catalog whose tables are in a bucket."""
    with deltasql.connect(
        sqlite_uri,
        storage={"options": s3_options},
        table={"data_root": f"{s3_location}/100%25 tables/"},
    ) as opened:
        yield opened


def files(storage: Storage) -> list[str]:
    return [f.name for f in storage.list() if not f.name.startswith("_delta_log/")]


def test_table_in_a_bucket_is_read_by_deltalake(
    catalog: Catalog, s3_options: dict[str, str]
) -> None:
    catalog.create_table("crm.wo %25 rld", ROWS.schema, partition_by="place")
    with catalog.begin() as tx:
        tx.write("crm.wo %25 rld", ROWS)
    with catalog.begin() as tx:
        tx.write("crm.wo %25 rld", ROWS.slice(0, 2))
    location = catalog.table("crm.wo %25 rld").location
    assert location.endswith("/100%25 tables/crm/wo%20%25%20rld")
    table = DeltaTable(location, storage_options=s3_options)
    assert table.version() == 2
    assert table.to_pyarrow_table().sort_by("id")["id"].to_pylist() == [
        0,
        0,
        1,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    first = DeltaTable(location, version=1, storage_options=s3_options)
    rows = first.to_pyarrow_table().sort_by("id").select(["id", "place"])
    assert rows.to_pylist() == ROWS.to_pylist()


def test_action_paths_resolve_to_files_in_the_bucket(
    catalog: Catalog, s3_settings: StorageSettings
) -> None:
    catalog.create_table("t", ROWS.schema, partition_by="place")
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    storage = open_storage(catalog.table("t").location, s3_settings)
    paths = catalog.table("t").snapshot().scan().arrow["path"].to_pylist()
    assert sorted(storage.data_name(path) for path in paths) == files(storage)
    assert len(paths) == 8


def test_files_of_a_rolled_back_transaction_are_deleted(
    catalog: Catalog, s3_settings: StorageSettings
) -> None:
    catalog.create_table("t", ROWS.schema)
    storage = open_storage(catalog.table("t").location, s3_settings)
    tx = catalog.begin()
    tx.write("t", ROWS)
    tx.write("t", ROWS.slice(0, 1), mode="overwrite")
    assert len(files(storage)) == 2, "what was overwritten goes when the transaction ends"
    tx.rollback()
    assert files(storage) == []


def test_write_deltalake_accepts_a_location_in_a_bucket(
    sqlite_uri: DeltaSqlUri,
    s3_location: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in s3_options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DELTASQL_STORAGE__TIMEOUT_S", "9.5")
    uri = f"deltasql://sqlite/{sqlite_uri.database}?table=sales&location={s3_location}/sales/"
    deltasql.write_deltalake(uri, ROWS, mode="append")
    table = DeltaTable(f"{s3_location}/sales", storage_options=s3_options)
    assert table.to_pyarrow_table().num_rows == 8
