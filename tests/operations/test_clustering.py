"""Clustered tables: OPTIMIZE sorts only unclustered files, and writers need to do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TxnLogSchemaError
from deltasql.operations.alter.cluster_by import clustering_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


def rows(first: int, count: int = 200) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "a": [i * 37 % 50 for i in ids], "b": [str(i % 9) for i in ids]})


@pytest.fixture
def clustered(catalog: Catalog) -> Catalog:
    """A clustered table of four files, each of which has all values."""
    catalog.create_table("t", SCHEMA, cluster_by=["a", "b"])
    for first in range(0, 800, 200):
        append(catalog, first)
    return catalog


def append(catalog: Catalog, first: int, count: int = 200) -> None:
    with catalog.begin() as tx:
        tx.write("t", rows(first, count))


def optimize(catalog: Catalog, **options: int) -> int:
    with catalog.begin() as tx:
        return int(tx.optimize("t", **options)["numFilesRemoved"])


def columns(catalog: Catalog) -> list[str]:
    return clustering_columns(catalog.table("t").snapshot())


def test_optimize_clusters_rows_for_data_skipping(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA, cluster_by=["a", "b"])
    for first in range(0, 80_000, 20_000):
        append(catalog, first, 20_000)
    assert len(catalog.table("t").snapshot().scan("a = 3").arrow) == 4
    assert optimize(catalog, target_size=50_000) == 4
    files = catalog.table("t").snapshot().scan().arrow
    assert set(files["clustering_provider"].to_pylist()) == {"deltasql"}
    assert 0 < len(catalog.table("t").snapshot().scan("a = 3").arrow) < len(files) / 2
    assert len(catalog.query("SELECT id FROM t").read_all()) == 80_000


def test_optimize_clusters_new_files_with_small_ones(clustered: Catalog) -> None:
    assert optimize(clustered) == 4
    assert optimize(clustered) == 0
    append(clustered, 800)
    assert optimize(clustered) == 2


def test_clustering_column_can_be_renamed_but_not_dropped(clustered: Catalog) -> None:
    table = deltasql.DeltaTable(clustered.table("t").uri)
    table.alter.rename_column("a", "x")
    assert columns(clustered) == ["x", "b"]
    with pytest.raises(TxnLogSchemaError, match="x"):
        table.alter.drop_column("x")
    with pytest.raises(TxnLogSchemaError, match="statistics"):
        table.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "1"})
    assert columns(clustered) == ["x", "b"]
    append_renamed = rows(900).rename_columns(["id", "x", "b"])
    with clustered.begin() as tx:
        tx.write("t", append_renamed)
    assert optimize(clustered) == 5


def test_z_order_of_a_clustered_table_is_rejected(clustered: Catalog) -> None:
    with pytest.raises(TxnLogSchemaError, match="clustered"), clustered.begin() as tx:
        tx.z_order("t", ["id"])


@pytest.mark.parametrize(
    ("wanted", "partitions", "message"),
    [
        (["c"], [], "no such column"),
        (["a", "a"], [], "different columns"),
        (["id", "a", "b", "id", "a"], [], "1 to 4"),
        (["a"], ["b"], "partitioned and clustered"),
    ],
)
def test_invalid_clustering_columns_are_rejected(
    catalog: Catalog, wanted: Sequence[str], partitions: Sequence[str], message: str
) -> None:
    with pytest.raises(TxnLogSchemaError, match=message):
        catalog.create_table("t", SCHEMA, cluster_by=wanted, partition_by=partitions)
    assert not catalog.exists("t")


def test_published_clustered_table_is_readable_and_importable(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    lake = {"data_root": str(tmp_path / "lake")}
    with deltasql.connect(sqlite_uri, mirror={"mode": "sync"}, table=lake) as catalog:
        catalog.create_table("t", SCHEMA, cluster_by=["a"])
        append(catalog, 0)
        append(catalog, 200)
        optimize(catalog)
        place = catalog.table("t").location
        assert len(deltalake.DeltaTable(place).to_pyarrow_table()) == 400
        catalog.mirror.checkpoint("t")
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/again.db") as other:
        other.import_table(place, name="t", verify=False, force=True)
        assert columns(other) == ["a"]
