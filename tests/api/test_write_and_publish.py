"""A row written with `write_deltalake` goes through SQL to `_delta_log` and to stock readers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import deltalake
import polars
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TableExistsError

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "c d"], "day": ["x", "x", None]})


@pytest.fixture
def location(catalog_uri: DeltaSqlUri, tmp_path: Path) -> str:
    """Write a table in three commits and return the location of its mirror."""
    place = str(tmp_path / "sales")
    uri = replace(catalog_uri.with_table("sales"), location=place).to_string()
    deltasql.write_deltalake(uri, ROWS, mode="append", partition_by=["day"])
    deltasql.write_deltalake(uri, ROWS, mode="append")
    deltasql.write_deltalake(uri, ROWS.slice(0, 1), mode="overwrite")
    with pytest.raises(TableExistsError):
        deltasql.write_deltalake(uri, ROWS, mode="error")
    deltasql.write_deltalake(uri, ROWS, mode="ignore")
    return place


def test_stock_deltalake_reads_every_version_of_the_mirror(location: str) -> None:
    counts = [
        deltalake.DeltaTable(location, version=v).to_pyarrow_table().num_rows for v in range(3)
    ]
    assert counts == [3, 6, 1]
    assert deltalake.DeltaTable(location).version() == 2


def test_stock_deltalake_refuses_to_write_to_the_mirror(location: str) -> None:
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        deltalake.write_deltalake(location, ROWS, mode="append")


def test_polars_reads_the_mirror(location: str) -> None:
    assert polars.read_delta(location, version=0).sort("id")["name"].to_list() == ["a", None, "c d"]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_pyspark_reads_the_files_of_the_snapshot(location: str, spark: object) -> None:
    table = deltalake.DeltaTable(location, version=1)
    frame = spark.read.parquet(*table.file_uris())  # type: ignore[attr-defined]
    assert sorted(row["id"] for row in frame.collect()) == [1, 1, 2, 2, 3, 3]
