"""`QueryBuilder` and `scan`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from arro3.core import RecordBatchReader
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, numbers, rows, sample


def test_query_aggregates_a_table(lake: Lake) -> None:
    builder = lake.QueryBuilder().register("t", lake.make("t", sample()))
    reader = builder.execute("select p, count(*) as n from t group by p order by p")
    assert type(reader).__name__ == "RecordBatchReader"
    assert pa.table(reader).to_pylist() == [{"p": "a", "n": 2}, {"p": "b", "n": 1}]


def test_query_joins_two_tables(lake: Lake) -> None:
    builder = lake.QueryBuilder()
    builder.register("a", lake.make("a", sample())).register("b", lake.make("b", numbers(2, 5)))
    found = builder.execute("select a.id, b.v as w from a join b on a.id = b.id order by a.id")
    assert pa.table(found).to_pylist() == [{"id": 2, "w": 20}, {"id": 3, "w": 30}]


def test_registered_table_stays_at_its_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    old = lake.DeltaTable(lake.uri("t"))
    lake.write_deltalake(table, sample(), mode="append")
    builder = lake.QueryBuilder().register("t", old).register("u", table)
    assert pa.table(builder.execute("select count(*) n from t"))["n"].to_pylist() == [3]
    assert pa.table(builder.execute("select count(*) n from u"))["n"].to_pylist() == [6]


def test_query_filters_a_partitioned_table(lake: Lake) -> None:
    builder = lake.QueryBuilder().register("t", lake.make("t", sample(), partition_by=["p"]))
    found = pa.table(builder.execute("select id, p from t where p = 'a' order by id desc"))
    assert found.to_pylist() == [{"id": 3, "p": "a"}, {"id": 1, "p": "a"}]


def test_query_result_is_read_in_batches(lake: Lake) -> None:
    builder = lake.QueryBuilder().register("t", lake.make("t", numbers(0, 100)))
    total = sum(batch.num_rows for batch in builder.execute("select * from t where id < 50"))
    assert total == 50


def test_invalid_sql_is_rejected(lake: Lake) -> None:
    builder = lake.QueryBuilder().register("t", lake.make("t", sample()))
    with pytest.raises(DeltaError, match="zz"):
        builder.execute("select zz from t")
    with pytest.raises(DeltaError):
        builder.execute("selec")
    with pytest.raises(DeltaError, match="nope"):
        builder.execute("select * from nope")


def test_scan_applies_columns_and_predicate(lake: Lake) -> None:
    table = lake.make("t", sample())
    reader = table.scan(columns=["id"], predicate="id > 1 and v is not null")
    assert isinstance(reader, RecordBatchReader)
    assert pa.table(reader).to_pylist() == [{"id": 3}]


def test_scan_returns_all_rows(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    found = pa.table(table.scan())
    assert found.column_names == ["id", "p", "v"]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == sample().to_pylist()


def test_scan_reads_the_loaded_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("id = 1")
    table.load_as_version(0)
    assert pa.table(table.scan()).num_rows == 3


def test_scan_of_missing_columns_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="zz"):
        table.scan(columns=["zz"])
    with pytest.raises(DeltaError, match="zz"):
        table.scan(predicate="zz = 1")


def test_scan_can_be_written_to_a_table(lake: Lake) -> None:
    table = lake.make("t", sample())
    other = lake.make("u", table.scan(predicate="id > 1"))
    assert rows(other) == sample().to_pylist()[1:]


def test_table_without_deletion_vectors_lists_no_vectors(lake: Lake) -> None:
    reader = lake.make("t", sample()).deletion_vectors()
    assert isinstance(reader, RecordBatchReader)
    found = pa.table(reader)
    assert (found.column_names, found.num_rows) == (["filepath", "selection_vector"], 0)
