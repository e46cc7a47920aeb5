"""deltalake reads the change data feed from the published table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from tests.operations.dml import make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

FEED = {"delta.enableChangeDataFeed": "true"}
ROWS = pa.table({"g": ["a", "a", "b", None], "id": [1, 2, 3, 4], "v": [1, 2, 3, 4]})


@pytest.fixture
def published(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes every commit."""
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "sync"}, table={"data_root": str(tmp_path / "lake")}
    ) as catalog:
        yield catalog


def changes(catalog: Catalog, version: int) -> set[tuple[Any, ...]]:
    location = catalog.resolve("t").location
    feed = deltalake.DeltaTable(location).load_cdf(starting_version=version, ending_version=version)
    found = pa.table(feed.read_all()).select(["g", "id", "v", "_change_type"]).to_pylist()
    return {tuple(row.values()) for row in found}


@pytest.mark.parametrize("partition_by", [[], ["g"]])
def test_deltalake_reads_changes_of_every_operation(
    published: Catalog, partition_by: list[str]
) -> None:
    table = make(published, ROWS, properties=FEED, partition_by=partition_by)
    first = table.snapshot.version
    table.update({"v": "v * 10"}, "id >= 3")
    table.delete("id = 1")
    with published.begin() as tx:
        source = pa.table({"g": ["a", "c"], "id": [2, 9], "v": [0, 9]})
        merger = tx.merge("t", source, "target.id = source.id")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert changes(published, first + 1) == {
        ("b", 3, 3, "update_preimage"),
        ("b", 3, 30, "update_postimage"),
        (None, 4, 4, "update_preimage"),
        (None, 4, 40, "update_postimage"),
    }
    assert changes(published, first + 2) == {("a", 1, 1, "delete")}
    assert changes(published, first + 3) == {
        ("a", 2, 2, "update_preimage"),
        ("a", 2, 0, "update_postimage"),
        ("c", 9, 9, "insert"),
    }
