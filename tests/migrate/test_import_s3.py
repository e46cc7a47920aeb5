"""Tables in a bucket are imported with the storage options of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pytest

import deltasql
from deltasql.exceptions import MissingDataFilesError
from deltasql.storage import open_storage
from tests.migrate.sources import rows

if TYPE_CHECKING:
    from deltasql.uri import DeltaSqlUri


def test_tables_in_a_bucket_are_imported_with_storage_options(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    for name in ("crm/orders", "events"):
        for number in range(3):
            deltalake.write_deltalake(
                f"{s3_location}/{name}",
                rows(number),
                mode="append",
                storage_options=s3_options,
            )
    summary = deltasql.import_tables(s3_location, sqlite_uri, storage_options=s3_options)
    assert {each.table: each.state for each in summary.tables} == {
        "crm.orders": "imported",
        "events": "imported",
    }, summary.summary()
    assert all(each.verification and each.verification.ok for each in summary.tables)
    source = f"{s3_location}/events".replace("s3://", "s3a://")
    again = deltasql.import_table(source, sqlite_uri, storage_options=s3_options)
    assert (again.table, again.state) == ("events", "up to date")
    settings = {"storage": {"options": s3_options}}
    with deltasql.connect(sqlite_uri, mirror={"mode": "sync"}, **settings) as catalog:
        with catalog.begin() as tx:
            tx.write("events", rows(7))
        seen = deltalake.DeltaTable(f"{s3_location}/events", storage_options=s3_options)
        assert seen.version() == 3
        storage = open_storage(f"{s3_location}/crm/orders", catalog.config.storage)
        files = catalog.table("crm.orders").files()["path"].to_pylist()
        storage.delete(files[0])
        catalog.drop("crm.orders")
        with pytest.raises(MissingDataFilesError, match="1 data files"):
            catalog.import_table(f"{s3_location}/crm/orders")
