"""Void columns: data files omit them, as the protocol says, and every operation works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
import deltasql.spark
from deltasql.exceptions import TxnLogError, TxnLogSchemaError, UnsupportedFeatureError
from deltasql.storage import open_storage
from tests.migrate.handwritten import PROTOCOL, HandwrittenTable, array, column, metadata, struct
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database

VOID = pa.null()
INNER = pa.struct([("a", pa.int64()), ("w", VOID)])
# PLAIN: a file can omit these columns. ODD: the protocol defines no form for these.
PLAIN = {"id": pa.int64(), "v": VOID, "s": INNER, "n": pa.list_(INNER)}
ODD = {
    "l": pa.list_(VOID),
    "m": pa.map_(pa.string(), VOID),
    "e": pa.struct([("w", VOID)]),
}


def row(number: int, *, odd: bool = False) -> dict[str, Any]:
    inner = {"a": number, "w": None}
    found = {"id": number, "v": None, "s": inner, "n": [inner, None]}
    if odd:
        found |= {"l": [None, None], "m": [("k", None)], "e": {"w": None}}
    return found


def rows(*numbers: int, odd: bool = False) -> pa.Table:
    """Return rows with void columns; in the last one only the id is not null."""
    schema = pa.schema(PLAIN | (ODD if odd else {}))
    data = [row(number, odd=odd) for number in numbers]
    data[-1] = {"id": numbers[-1]}
    return pa.Table.from_pylist(data, schema=schema)


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> HandwrittenTable:
    return HandwrittenTable(tmp_path / "t")


def handle(catalog: Catalog) -> deltasql.DeltaTable:
    return deltasql.DeltaTable(catalog.uri.with_table("t").to_string())


def ordered(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(table).sort_by("id").to_pylist()
    return found


def check_readers(catalog: Catalog, wanted: pa.Table) -> None:
    """Assert that our readers and deltalake's find these rows."""
    ours = handle(catalog)
    with catalog.begin() as tx:
        in_transaction = pa.table(tx.read("t"))
    stock = deltalake.DeltaTable(catalog.table("t").location)
    query = deltalake.QueryBuilder().register("t", stock).execute("SELECT * FROM t")
    for found in (ours.to_pyarrow_table(), in_transaction, stock.to_pyarrow_table(), query):
        assert ordered(found) == ordered(wanted)
    assert ours.to_pyarrow_table().schema.field("v").type == VOID


def stored_schemas(catalog: Catalog) -> list[pa.Schema]:
    place = catalog.table("t").location
    paths = catalog.table("t").files()["path"].to_pylist()
    return [pq.read_schema(f"{place}/{path}") for path in paths]


def test_data_files_omit_void_columns(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", rows(1, 2))
    (stored,) = stored_schemas(lake)
    assert stored.names == ["id", "s", "n"]
    assert [field.name for field in stored.field("s").type] == ["a"]
    assert [field.name for field in stored.field("n").type.value_type] == ["a"]
    check_readers(lake, rows(1, 2))


def test_every_operation_works_on_void_columns(lake: Catalog) -> None:
    """Void can be in a list, in a map or alone in a struct, where the file stores nulls."""
    deltasql.write_deltalake(
        lake.uri.with_table("t").to_string(),
        rows(1, 2, 3, odd=True),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    check_readers(lake, rows(1, 2, 3, odd=True))
    with lake.begin() as tx:
        tx.update("t", {"id": "id + 10"}, predicate="id = 1")
        tx.update("t", {"v": "NULL", "s": "NULL"}, predicate="id = 2")
    with lake.begin() as tx:
        tx.delete("t", "id = 2")
    with lake.begin() as tx:
        aliases = {"source_alias": "s", "target_alias": "t"}
        merge = tx.merge("t", rows(3, 9, 10, odd=True), "t.id = s.id", **aliases)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    with lake.begin() as tx:
        tx.write("t", rows(20, 21, odd=True))
    wanted = pa.Table.from_pylist(
        [
            {**row(1, odd=True), "id": 11},
            *[row(number, odd=True) for number in (3, 9, 20)],
            {"id": 10},
            {"id": 21},
        ],
        schema=rows(1, odd=True).schema,
    )
    check_readers(lake, wanted)
    with lake.begin() as tx:
        tx.optimize("t")
    check_readers(lake, wanted)
    handle(lake).optimize.z_order(["id"])
    check_readers(lake, wanted)
    feed = pa.table(handle(lake).load_cdf(0))
    assert {each["v"] for each in feed.to_pylist()} == {None}
    assert feed.num_rows == 3 + 2 + 2 + 1 + 2 + 2 + 2


def test_table_with_only_void_columns_keeps_its_rows(lake: Catalog) -> None:
    nothing = pa.table({"v": pa.nulls(3)})
    with lake.begin() as tx:
        tx.write("t", nothing)
    assert handle(lake).to_pyarrow_table() == nothing
    assert deltalake.DeltaTable(lake.table("t").location).to_pyarrow_table() == nothing


@pytest.mark.parametrize("name", ["v", "s", "l"])
def test_error_names_void_column_that_gets_a_value(lake: Catalog, name: str) -> None:
    with lake.begin() as tx:
        tx.write("t", rows(1, odd=True))
    values = {"v": "5", "s": "named_struct('a', 1, 'w', 5)", "l": "make_array(5)"}
    with pytest.raises(TxnLogSchemaError, match=f"column '{name}'.*void"), lake.begin() as tx:
        tx.update("t", {name: values[name]})
    check_readers(lake, rows(1, odd=True))


def integers(made: HandwrittenTable) -> pa.Table:
    """Create a table whose files store integers in void columns, as development versions did."""
    inner = struct(column("a"), column("w", "void"))
    fields = {"id": "long", "v": "void", "s": inner, "n": array(inner)}
    kind = pa.struct([("a", pa.int64()), ("w", pa.int32())])
    stored = {"id": pa.int64(), "v": pa.int32(), "s": kind, "n": pa.list_(kind)}
    made.commit(
        PROTOCOL,
        metadata(*[column(name, kind) for name, kind in fields.items()]),
        made.add("a.parquet", pa.Table.from_pylist([row(1), {"id": 2}], schema=pa.schema(stored))),
    )
    return rows(1, 2)


def test_integers_in_void_columns_are_read(lake: Catalog, made: HandwrittenTable) -> None:
    wanted = integers(made)
    lake.import_table(made.path, name="t")
    assert handle(lake).to_pyarrow_table() == wanted
    with lake.begin() as tx:
        assert ordered(tx.read("t")) == ordered(wanted)
    with lake.begin() as tx:
        tx.update("t", {"id": "id"})
    check_readers(lake, wanted)


def test_void_columns_in_a_bucket_are_read_and_changed(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    """DuckDB does not open these files."""
    with deltasql.connect(
        sqlite_uri, storage={"options": s3_options}, table={"data_root": s3_location}
    ) as catalog:
        with catalog.begin() as tx:
            tx.write("t", rows(1, 2, odd=True))
        table = catalog.table("t")
        path = "old.parquet"
        old = pa.table({"id": [3], "v": pa.nulls(1, pa.int32())})
        sink = pa.BufferOutputStream()
        pq.write_table(old, sink)
        open_storage(table.location, catalog.config.storage).put(path, sink.getvalue().to_pybytes())
        with catalog.begin() as tx:
            size = len(sink.getvalue())
            tx.stage_table("t", [deltasql.AddFile(path, {}, size, modification_time=0)])
        with catalog.begin() as tx:
            tx.update("t", {"id": "id + 10"}, predicate="id = 2")
        with catalog.begin() as tx:
            found = ordered(tx.read("t"))
    first, last = ordered(rows(1, 2, odd=True))
    assert found == [first, {**last, "id": 3}, {**last, "id": 12}]


def on_spark(spark: SparkSession, catalog: Catalog, name: str = "t") -> list[dict[str, Any]]:
    # Do not use toArrow: pyspark's own cast fails for a list that contains void.
    found = deltasql.spark.read(spark, catalog.uri.with_table(name).to_string())
    return [each.asDict(recursive=True) for each in found.orderBy("id").collect()]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_spark_reads_and_changes_void_columns(
    spark: SparkSession, lake: Catalog, made: HandwrittenTable
) -> None:
    wanted = ordered(integers(made))
    lake.import_table(made.path, name="t")
    assert on_spark(spark, lake) == wanted
    with lake.begin() as tx:
        tx.update("t", {"id": "id + 10"}, predicate="id = 1", engine="spark")
    (stored,) = stored_schemas(lake)
    assert stored.names == ["id", "s", "n"]
    check_readers(lake, pa.Table.from_pylist([wanted[1], {**wanted[0], "id": 11}], rows(1).schema))
    found = spark.read.format("delta").load(made.path)
    shown = found.orderBy("id").select("id", "v", "s.a", "s.w").collect()
    assert [tuple(each) for each in shown] == [(2, None, None, None), (11, None, 1, None)]
    with pytest.raises(TxnLogError, match="'v'"), lake.begin() as tx:
        tx.update("t", {"v": "5"}, engine="spark")


@pytest.mark.everything("each change is several jobs of Spark")
def test_every_operation_on_void_columns_works_on_spark(
    spark: SparkSession, lake: Catalog, made: HandwrittenTable
) -> None:
    integers(made)
    lake.import_table(made.path, name="t")
    with lake.begin() as tx:
        inner = "struct<a: long, w: void>"
        source = spark.createDataFrame(
            [tuple(row(3).values())], f"id long, v void, s {inner}, n array<{inner}>"
        )
        aliases = {"source_alias": "s", "target_alias": "t", "engine": "spark"}
        merge = tx.merge("t", source, "t.id = s.id", **aliases)
        merge.when_not_matched_insert_all().execute()
    with lake.begin() as tx:
        tx.delete("t", "id = 2", engine="spark")
    with lake.begin() as tx:
        tx.optimize("t", engine="spark")
    wanted = pa.Table.from_pylist([row(1), row(3)], schema=rows(1).schema)
    check_readers(lake, wanted)
    assert on_spark(spark, lake) == ordered(wanted)


@pytest.mark.everything("Spark, for void types that only deltalake and DuckDB can store")
def test_spark_rejects_void_types_it_cannot_write(spark: SparkSession, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", rows(1, 2, odd=True))
    (first, last) = ordered(rows(1, 2, odd=True))
    assert on_spark(spark, lake) == [{**first, "m": {"k": None}}, last]
    with (
        pytest.raises(UnsupportedFeatureError, match="column 'l' has the type void"),
        lake.begin() as tx,
    ):
        tx.update("t", {"id": "id + 1"}, engine="spark")
