"""Verification, repair, adopt, reject and rebuild on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

import deltasql
from deltasql.mirror.log.encode import commit_file
from deltasql.storage import open_storage
from tests.conftest import add_file

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri


def test_verify_repair_adopt_reject_and_rebuild_work_on_s3(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    settings = {
        "mirror": {"mode": "sync", "checkpoint_interval": 3},
        "table": {"data_root": s3_location, "in_commit_timestamps": False},
        "storage": {"options": s3_options},
    }
    with deltasql.connect(sqlite_uri, **settings) as catalog:
        catalog.create_table("crm.t", pa.schema([("id", pa.int64())]))
        for number in range(4):
            with catalog.begin() as tx:
                tx.stage_table("crm.t", [add_file(f"{number}.parquet")])
        location = catalog.table("crm.t").location
        storage = open_storage(location, catalog.config.storage)
        (report,) = catalog.mirror.verify("crm.t", versions="all")
        assert report.ok, report.summary()
        assert report.checkpoints == [3]

        storage.delete(commit_file(2))
        assert not catalog.mirror.verify("crm.t")[0].ok
        assert catalog.mirror.repair("crm.t").published == [2]

        rows = pa.table({"id": [1]})
        deltalake.write_deltalake(location, rows, mode="append", storage_options=s3_options)
        assert catalog.mirror.adopt("crm.t").adopted == {5: 5}
        deltalake.write_deltalake(location, rows, mode="append", storage_options=s3_options)
        assert catalog.mirror.reject("crm.t").rejected == [6]
        seen = deltalake.DeltaTable(location, storage_options=s3_options)
        assert (seen.version(), len(seen.file_uris())) == (5, 5)

    rebuilt = f"deltasql://sqlite/{tmp_path}/new.db"
    result = deltasql.rebuild(rebuilt, s3_location, **settings)
    assert [(each.name, each.loaded) for each in result.tables] == [("crm.t", 6)]
    with deltasql.connect(rebuilt, **settings) as catalog:
        assert catalog.table("crm.t").location == location
        (report,) = catalog.mirror.verify(versions="all")
        assert report.ok, report.summary()
        assert report.foreign_bytes == [5]
