"""Libraries that support deltalake work on deltasql tables, tested with the real libraries."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import duckdb_extensions
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deltasql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "part": ["a", "a", "b b", None],
        "price": pa.array([1.5, None, 3.5, 4.5], pa.float64()),
    }
)


@pytest.fixture
def uri(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[str]:
    """Return the URI of a table of four rows in three partitions, with deltasql registered."""
    deltasql.register()
    place = str(tmp_path / "lake" / "t")
    address = replace(sqlite_uri.with_table("t"), location=place).to_string()
    deltasql.write_deltalake(address, ROWS, partition_by=["part"])
    yield address
    deltasql.unregister()


@pytest.fixture
def new_uri(sqlite_uri: DeltaSqlUri) -> Iterator[str]:
    """Return the URI of a table that does not exist yet."""
    deltasql.register()
    yield sqlite_uri.with_table("new").to_string()
    deltasql.unregister()


def ids(frame: Any) -> list[int]:
    return sorted(int(each) for each in frame["id"])


def test_polars_reads_by_uri_and_by_table_object(uri: str) -> None:
    assert ids(pl.read_delta(uri)) == [1, 2, 3, 4]
    lazy = pl.scan_delta(uri).filter(pl.col("part") == "b b").select("id")
    assert ids(lazy.collect()) == [3]
    assert ids(pl.scan_delta(deltasql.DeltaTable(uri)).filter(pl.col("id") > 2).collect()) == [3, 4]
    assert ids(pl.read_delta(uri, version=0)) == [1, 2, 3, 4]
    assert pl.read_delta(uri, use_pyarrow=True).height == 4


def test_polars_writes_appends_overwrites_and_merges(uri: str) -> None:
    more = pl.DataFrame({"id": [9], "part": ["z"], "price": [0.5]})
    more.write_delta(uri, mode="append")
    assert ids(pl.read_delta(uri)) == [1, 2, 3, 4, 9]
    merged = (
        more.with_columns(price=pl.lit(7.0))
        .write_delta(
            uri,
            mode="merge",
            delta_merge_options={
                "predicate": "s.id = t.id",
                "source_alias": "s",
                "target_alias": "t",
            },
        )
        .when_matched_update_all()
        .execute()
    )
    assert merged["num_target_rows_updated"] == 1
    assert pl.read_delta(uri).filter(pl.col("id") == 9)["price"].to_list() == [7.0]
    more.write_delta(uri, mode="overwrite")
    assert ids(pl.read_delta(uri)) == [9]
    assert deltasql.DeltaTable(uri).version() == 3


def test_polars_rows_merge_with_a_condition_on_source_and_target(uri: str) -> None:
    with deltasql.connect(uri.partition("?")[0]) as catalog:
        for turn in (1, 2):
            rows = pl.DataFrame({"id": [1], "name": ["Ann"], "changed": [turn]})
            with catalog.begin() as tx:
                if turn == 1:
                    tx.create_table("people", rows.to_arrow().schema)
                merge = tx.merge("people", rows, "t.id = s.id", source_alias="s", target_alias="t")
                merge = merge.when_matched_update_all("s.changed > t.changed")
                merge.when_not_matched_insert_all().execute()
        assert catalog.query("FROM people").read_all().to_pylist() == [
            {"id": 1, "name": "Ann", "changed": 2}
        ]


def test_polars_creates_a_table(new_uri: str) -> None:
    pl.DataFrame({"id": [1]}).write_delta(new_uri)
    assert ids(pl.read_delta(new_uri)) == [1]


@pytest.mark.parametrize("start", ["import deltasql; deltasql.register()", ""])
def test_polars_query_plan_can_be_collected_in_another_process(
    uri: str, tmp_path: Path, start: str
) -> None:
    """In that process, a plan made from a URI queries the catalog.

    A plan made from a table object already contains the files and does not open the catalog.
    """
    source = uri if start else deltasql.DeltaTable(uri)
    plan = tmp_path / "plan.bin"
    plan.write_bytes(pickle.dumps(pl.scan_delta(source).select("id")))
    code = f"{start}\nimport pickle\nplan = pickle.load(open({str(plan)!r}, 'rb'))\n"
    code += "print(plan.collect()['id'].sum())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "10", run.stderr


def test_pandas_reads_and_writes(uri: str) -> None:
    frame = deltasql.DeltaTable(uri).to_pandas()
    assert ids(frame) == [1, 2, 3, 4]
    deltalake.write_deltalake(
        uri, pd.DataFrame({"id": [7], "part": ["a"], "price": [1.0]}), mode="append"
    )
    filtered = deltalake.DeltaTable(uri).to_pandas(filters=[("id", ">", 3)], columns=["id"])
    assert ids(filtered) == [4, 7]


def test_duckdb_queries_datasets_scans_and_the_published_log(uri: str) -> None:
    table = deltasql.DeltaTable(uri)
    dataset = table.to_pyarrow_dataset()
    scanned = table.scan(predicate="id > 1")
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        assert connection.sql("SELECT sum(id) FROM dataset WHERE part = 'a'").fetchone() == (3,)
        connection.register("scanned", pa.RecordBatchReader.from_stream(scanned))
        assert connection.sql("SELECT count(*) FROM scanned").fetchone() == (3,)
        duckdb_extensions.import_extension("delta")
        connection.sql("LOAD delta")
        found = connection.execute("SELECT count(*) FROM delta_scan(?)", [table.table_uri])
        assert found.fetchone() == (4,)


def test_daft_reads_a_table(uri: str) -> None:
    daft = pytest.importorskip("daft", reason="daft is not installed")
    frame = daft.read_deltalake(uri)
    assert ids(frame.to_pydict()) == [1, 2, 3, 4]
    assert ids(frame.where(frame["part"] == "a").to_pydict()) == [1, 2]


def test_daft_writes_to_a_table(uri: str) -> None:
    daft = pytest.importorskip("daft", reason="daft is not installed")
    pytest.importorskip("pyiceberg", reason="the writers of daft import pyiceberg, all of them")
    more = daft.from_pydict({"id": [8], "part": ["a"], "price": [2.5]})
    more.write_deltalake(deltasql.DeltaTable(uri), mode="append")
    assert ids(daft.read_deltalake(uri).to_pydict()) == [1, 2, 3, 4, 8]
    assert deltasql.DeltaTable(uri).version() == 1
    more.write_deltalake(uri, mode="overwrite")
    assert ids(daft.read_deltalake(uri).to_pydict()) == [8]


def test_dask_reads_a_table(uri: str) -> None:
    dask_deltatable = pytest.importorskip(
        "dask_deltatable", reason="dask-deltatable is not installed"
    )
    frame = dask_deltatable.read_deltalake(uri)
    assert ids(frame.compute()) == [1, 2, 3, 4]
    narrow = dask_deltatable.read_deltalake(uri, columns=["id"], filter=[("part", "=", "a")])
    assert ids(narrow.compute()) == [1, 2]


def test_ibis_reads_through_polars_and_duckdb(uri: str) -> None:
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    through_polars = ibis.polars.connect().read_delta(uri)
    assert ids(through_polars.filter(through_polars.id > 2).to_polars()) == [3, 4]
    table = deltasql.DeltaTable(uri)
    through_duckdb = ibis.duckdb.connect().read_delta(table.table_uri)
    assert through_duckdb.count().execute() == 4


def test_datafusion_queries_a_table(uri: str) -> None:
    datafusion = pytest.importorskip("datafusion", reason="datafusion is not installed")
    context = datafusion.SessionContext()
    context.register_table("t", deltasql.DeltaTable(uri))
    result = context.sql("SELECT id FROM t WHERE part = 'a'").to_arrow_table()
    assert ids(result.to_pydict()) == [1, 2]
