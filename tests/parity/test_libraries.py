"""Other libraries read and write the tables."""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaProtocolError
from deltalake.fs import DeltaStorageHandler

from tests.parity.lakes import Lake, column, rows, sample

ONE = pl.DataFrame({"id": [9], "p": ["q"], "v": [1.0]})


def test_polars_scan_filters_and_aggregates(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    frame = pl.scan_delta(table)
    assert frame.filter(pl.col("p") == "a").sort("id").collect().rows() == [
        (1, "a", 1.5),
        (3, "a", 2.5),
    ]
    assert frame.select(pl.col("v").sum()).collect().item() == 4.0


def test_polars_reads_the_loaded_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    assert pl.read_delta(table).height == 6
    assert pl.read_delta(table, use_pyarrow=True).height == 6
    table.load_as_version(0)
    assert pl.read_delta(table, columns=["id"]).shape == (3, 1)


def test_polars_appends_and_overwrites(lake: Lake) -> None:
    table = lake.make("t", sample())
    ONE.write_delta(table, mode="append")
    assert (table.version(), column(table, "id")) == (1, [1, 2, 3, 9])
    ONE.write_delta(table, mode="overwrite")
    assert rows(table) == [{"id": 9, "p": "q", "v": 1.0}]


def test_polars_merges_into_a_table(lake: Lake) -> None:
    table = lake.make("t", sample())
    frame = pl.DataFrame({"id": [1, 9], "p": ["x", "y"], "v": [0.0, 0.0]})
    options = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
    builder = frame.write_delta(table, mode="merge", delta_merge_options=options)
    builder.when_matched_update_all().when_not_matched_insert_all().execute()
    assert [row["p"] for row in rows(table)] == ["x", "b", "a", "y"]


def test_duckdb_reads_a_dataset_and_a_scan(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    with duckdb.connect() as connection:
        connection.register("data", table.to_pyarrow_dataset())
        query = "select count(*), sum(v) from data where p = 'a'"
        assert connection.sql(query).fetchall() == [(2, 4.0)]
        connection.register("stream", pa.RecordBatchReader.from_stream(table.scan()))
        assert connection.sql("select sum(id) from stream").fetchall() == [(6,)]


def test_storage_handler_reads_files_of_the_table(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    system = pyarrow.fs.PyFileSystem(DeltaStorageHandler(table.table_uri))
    (info,) = system.get_file_info(pyarrow.fs.FileSelector("p=b"))
    with system.open_input_file(info.path) as file:
        assert pq.read_table(file)["id"].to_pylist() == [2]


def test_dataset_is_rejected_with_deletion_vectors(lake: Lake) -> None:
    table = lake.DeltaTable.create(
        lake.uri("t"), sample().schema, configuration={"delta.enableDeletionVectors": "true"}
    )
    lake.write_deltalake(table, sample(), mode="append")
    table.delete("id = 1")
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        table.to_pyarrow_dataset()
    assert sorted(pa.table(table.scan())["id"].to_pylist()) == [2, 3]
