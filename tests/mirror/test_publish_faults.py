"""Rare failures of publishing, and what they must not cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.phases import hooked
from tests.commit.support import file
from tests.mirror.support import commit_path, forget_published, open_mirrored, published_versions

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])


def append(catalog: Catalog, name: str, table: str = "t") -> int:
    with catalog.begin() as tx:
        tx.stage_table(table, [file(name)])
    return tx.versions[table]


def test_published_views_do_not_count_as_the_published_log(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    with deltasql.connect(
        catalog_uri, mirror={"mode": "off"}, table={"data_root": str(lake)}
    ) as unpublished:
        unpublished.create_table("t", SCHEMA)
        deltasql.mirror_duckdb(unpublished, tmp_path / "views.duckdb")
    with open_mirrored(catalog_uri, lake) as catalog:
        assert append(catalog, "a") == 1
        assert published_versions(catalog.table("t").location) == [0, 1]
        assert catalog.mirror.targets("t")[0].name == "table"


@pytest.mark.parametrize("left", [b"", b"\0" * 40, None], ids=["empty", "zeros", "half"])
def test_commit_file_truncated_by_power_loss_is_rewritten(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, left: bytes | None
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, "a")
        place = catalog.table("t").location
        whole = commit_path(place, 1).read_bytes()
        commit_path(place, 1).write_bytes(whole[: len(whole) // 2] if left is None else left)
        forget_published(catalog.store, catalog.resolve("t"), from_version=1)
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        assert catalog.mirror.publish("t") == 1
        assert commit_path(place, 1).read_bytes() == whole


def test_publish_failure_never_fails_a_ratified_commit(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    def broken(point: str) -> None:
        if point == "publishing":
            raise KeyError("a mistake of ours")

    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        with hooked(broken):
            assert append(catalog, "a") == 1
        (own,) = catalog.mirror.status("t")
        assert (own.state, own.pending) == ("FAILED", 1)
        assert append(catalog, "b") == 2
        assert published_versions(catalog.table("t").location) == [0, 1, 2]
