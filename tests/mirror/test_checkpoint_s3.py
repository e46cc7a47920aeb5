"""Checkpoints, checksums and log cleanup in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from deltasql.config import Config
from deltasql.mirror.log import cleanup
from deltasql.mirror.log.last_checkpoint import checkpoint_file, last_checkpoint_version
from deltasql.storage import open_storage
from tests.conftest import add_file
from tests.mirror.checkpoint_support import table_row
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    import pytest

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


def append(catalog: Catalog, version: int) -> None:
    """Add enough files for a checkpoint of some size."""
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(f"{version}/{each:05}") for each in range(3_000)])


def test_log_in_an_object_store_is_maintained_as_on_disk(
    sqlite_uri: DeltaSqlUri,
    s3_location: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"options": s3_options}
    with open_mirrored(sqlite_uri, s3_location, storage=settings) as catalog:
        schema = pa.schema([("id", pa.int64())])
        catalog.create_table("t", schema, properties={"delta.checkpointInterval": "2"})
        location = table_row(catalog).location
        for version in range(1, 4):
            append(catalog, version)
        later = catalog.table("t").snapshot().committed_at_ms + 30 * 86_400_000
        monkeypatch.setattr(cleanup, "now_ms", lambda: later)
        append(catalog, 4)
    storage = open_storage(location, Config(storage=settings).storage)
    names = [file.name.removeprefix("_delta_log/") for file in storage.list("_delta_log/")]
    kept = [f"{v:020d}.{kind}" for v in (2, 3, 4) for kind in ("checkpoint.parquet", "crc", "json")]
    kept.remove(f"{3:020d}.checkpoint.parquet")
    assert names == sorted([*kept, "_last_checkpoint"])
    assert last_checkpoint_version(storage) == 4
    assert storage.exists(checkpoint_file(4))
    for version in (2, 3, 4):
        table = deltalake.DeltaTable(location, version=version, storage_options=s3_options)
        assert len(table.file_uris()) == 3_000 * version
