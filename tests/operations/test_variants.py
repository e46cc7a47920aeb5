"""Variants keep their bytes in every operation of the embedded engine, also shredded ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.storage import open_storage
from tests.operations.maintenance import open_lake, opened, published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")])
COLUMNS = "id INT, v VARIANT, s STRUCT<w: VARIANT, n: INT>, l ARRAY<VARIANT>"
NULL = {"metadata": b"\x01\x00\x00", "value": b"\x00"}


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        yield catalog


def number(value: int) -> dict[str, bytes]:
    """Return a variant with a 32-bit integer."""
    return {"metadata": b"\x01\x00\x00", "value": b"\x14" + struct.pack("<i", value)}


def row(n: int, variant: Any) -> dict[str, Any]:
    return {"id": n, "v": variant, "s": {"w": variant, "n": n}, "l": [variant, None]}


def add_rows(lake: Catalog, path: str, rows: list[dict[str, Any]]) -> None:
    """Add a Parquet file with these rows, with variants encoded as other programs do."""
    nested = pa.struct([("w", VARIANT), ("n", pa.int32())])
    schema = pa.schema(
        [("id", pa.int32()), ("v", VARIANT), ("s", nested), ("l", pa.list_(VARIANT))]
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    add_file(lake, path, sink.getvalue().to_pybytes(), len(rows))


def add_file(lake: Catalog, path: str, content: bytes, count: int) -> None:
    open_storage(lake.table("t").location, lake.config.storage).put(path, content)
    stats = f'{{"numRecords":{count}}}'
    action = deltasql.AddFile(path, {}, len(content), modification_time=0, stats=stats)
    with lake.begin() as tx:
        tx.stage_table("t", [action])


def rows_of(lake: Catalog) -> list[dict[str, Any]]:
    with lake.begin() as tx:
        found = tx.read("t").to_pylist()
    return sorted(found, key=lambda each: each["id"] or 0)


FEATURES = {
    "plain": {},
    "feed": {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"},
    "row ids": {"delta.enableRowTracking": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
}


@pytest.mark.parametrize("case", FEATURES)
def test_variants_keep_their_bytes_in_every_operation(lake: Catalog, case: str) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS})")
    rows = [row(1, number(7)), row(2, None), row(3, NULL), row(4, number(9)), row(5, number(-1))]
    add_rows(lake, "a.parquet", rows[:3])
    add_rows(lake, "b.parquet", rows[3:])
    assert rows_of(lake) == rows
    opened(lake).alter.set_table_properties(FEATURES[case])
    lake.sql("UPDATE t SET id = 10 WHERE id = 1")
    lake.sql("DELETE FROM t WHERE id = 4")
    expected = [*rows[1:3], rows[4], {**rows[0], "id": 10}]
    assert rows_of(lake) == expected
    if case == "plain":
        assert len(published(lake).to_pyarrow_table()) == 4
    lake.sql("INSERT INTO t (id) VALUES (20)")
    lake.sql("UPDATE t SET v = s.w, l = NULL WHERE id = 5")
    lake.sql("UPDATE t SET v = NULL WHERE id = 10")
    expected[2]["l"] = expected[3]["v"] = None
    expected.append({"id": 20, "v": None, "s": None, "l": None})
    assert rows_of(lake) == expected
    lake.sql(
        "MERGE INTO t USING (SELECT * FROM t WHERE id < 4) AS s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id + 100, s.v) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 20 THEN DELETE"
    )
    lake.sql("OPTIMIZE t")
    expected[1]["v"] = expected[0]["v"]
    expected[-1] = {"id": 103, "v": NULL, "s": None, "l": None}
    assert rows_of(lake) == expected
    assert len(lake.table("t").files()) == 1
    lake.sql("OPTIMIZE t ZORDER BY (id)")
    assert rows_of(lake) == expected
    assert lake.mirror.verify("t")[0].ok


def test_shredded_variants_are_read_and_rewritten_unshredded(lake: Catalog, tmp_path: Path) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, v VARIANT) TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    )
    features = published(lake).protocol().reader_features
    assert {"variantType", "variantShredding"} <= set(features)
    path = tmp_path / "shredded.parquet"
    duckdb.execute(
        "COPY (SELECT * FROM (VALUES (1, {'a': 5, 'b': [1]}::VARIANT), (2, 7::VARIANT), "
        "(3, {'a': 'no number'}::VARIANT)) AS r(id, v)) "
        f"TO '{path}' (FORMAT parquet, SHREDDING {{'v': 'STRUCT(a INTEGER)'}})"
    )
    add_file(lake, "shredded.parquet", path.read_bytes(), 3)
    before = rows_of(lake)
    texts = [as_text(each["v"]) for each in before]
    assert texts == ["{'a': 5, 'b': [1]}", "7", "{'a': no number}"]
    lake.sql("UPDATE t SET id = id + 10 WHERE id = 3")
    lake.sql("DELETE FROM t WHERE id = 2")
    lake.sql("OPTIMIZE t")
    assert rows_of(lake) == [before[0], {**before[2], "id": 13}]
    [uri] = opened(lake).file_uris()
    kind = pq.read_schema(uri.removeprefix("file://")).field("v").type
    assert sorted(member.name for member in kind) == ["metadata", "value"]
    assert lake.mirror.verify("t")[0].ok


def as_text(variant: dict[str, bytes]) -> str:
    content = variant["metadata"] + variant["value"]
    query = "SELECT variant_bytes_to_variant(?::BLOB)::VARCHAR"
    return str(duckdb.execute(query, [content]).fetchone()[0])


def test_inserts_and_merges_copy_variants_from_queries_and_data(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS})")
    rows = [row(1, number(7)), row(2, None), row(3, NULL)]
    add_rows(lake, "a.parquet", rows)
    with lake.begin() as tx:
        data = tx.read("t")
    moved = data.set_column(0, "id", pa.array([11, 12, 13], pa.int32()))
    expected = rows + [{**each, "id": each["id"] + 10} for each in rows]

    def write() -> None:
        deltasql.write_deltalake(lake.table("t").uri, moved, mode="append")

    def merge() -> None:
        merger = opened(lake).merge(moved, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_not_matched_insert_all().execute()

    select = "SELECT id + 10 AS id, v, s, l FROM t"
    steps = (
        lambda: lake.sql(f"INSERT INTO t {select}"),
        lambda: lake.sql(f"INSERT INTO t REPLACE WHERE id > 10 {select}"),
        lambda: lake.sql(
            f"MERGE INTO t USING ({select}) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        ),
        write,
        merge,
    )
    for number_of_step, step in enumerate(steps):
        step()
        assert rows_of(lake) == expected, number_of_step
        lake.sql("DELETE FROM t WHERE id > 3")
    lake.sql("INSERT INTO t VALUES (10, NULL, NULL, NULL), (11, NULL, NULL, NULL)")
    lake.sql("INSERT INTO t SELECT 12, NULL, NULL, NULL")
    lake.sql("INSERT INTO t SELECT * FROM VALUES (13, NULL, NULL, NULL) AS r(id, v, s, l)")
    nulls = [{"id": n, "v": None, "s": None, "l": None} for n in (10, 11, 12, 13)]
    assert rows_of(lake) == rows + nulls


def test_safe_cast_stores_null_in_a_table_with_a_variant(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS})")
    lake.sql("INSERT INTO t VALUES (1, NULL, NULL, NULL)")
    with lake.begin() as tx:
        source = pa.table({"id": pa.array([1, 2], pa.int32())})
        options = {"source_alias": "s", "target_alias": "t", "error_on_type_mismatch": False}
        merger = tx.merge("t", source, "t.id = s.id", **options)
        merger = merger.when_matched_update({"id": "'no number'", "v": "NULL"})
        merger.when_not_matched_insert({"id": "'no number'", "v": "NULL"}).execute()
    assert rows_of(lake) == 2 * [{"id": None, "v": None, "s": None, "l": None}]


def test_columns_made_by_queries_of_variants_are_variants(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE source ({COLUMNS})")
    lake.sql("CREATE TABLE t AS SELECT * FROM source")
    assert lake.table("t").snapshot().schema == lake.table("source").snapshot().schema
    add_rows(lake, "a.parquet", [row(1, number(7))])
    lake.sql("INSERT WITH SCHEMA EVOLUTION INTO t SELECT id + 1 AS id, v, s, l, v AS w FROM t")
    lake.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT id + 2 AS id, array(v) AS m FROM t) AS s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    schema = lake.table("t").snapshot().schema
    assert [str(schema.find(name).type) for name in ("w", "m")] == [
        "variant",
        "ArrayType(element_type='variant', contains_null=True)",
    ]
    found = {each["id"]: each for each in rows_of(lake)}
    assert found[2]["w"] == number(7)
    assert found[3]["m"] == [number(7)]


def test_embedded_engine_does_not_compute_variants(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS})")
    add_rows(lake, "a.parquet", [row(1, number(7))])
    version = lake.table("t").snapshot().version
    for statement in (
        "INSERT INTO t (id, v) VALUES (1, 'text')",
        "INSERT INTO t (id, v) VALUES (1, parse_json('1'))",
        "INSERT INTO t (id, v) VALUES (1, 5), (2, NULL)",
        "INSERT INTO t (id, v) SELECT id, id FROM t",
        "INSERT INTO t (id, l) SELECT id, array('a') FROM t",
        "INSERT INTO t (id, s) SELECT id, named_struct('w', 'a', 'n', 1) FROM t",
        "MERGE INTO t USING (SELECT 2 AS id, 'a' AS v) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
        "MERGE INTO t USING (SELECT 2 AS id) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, parse_json('1'))",
        "CREATE TABLE u AS SELECT CAST(id AS VARIANT) AS v FROM t",
        "UPDATE t SET v = 1",
        "UPDATE t SET v = id",
    ):
        with pytest.raises((TxnLogSchemaError, UnsupportedFeatureError), match="variant"):
            lake.sql(statement)
    text = pa.table({"id": pa.array([2], pa.int32()), "v": ["text"]})
    with pytest.raises(TxnLogSchemaError, match="Cannot cast field v from Utf8"):
        deltasql.write_deltalake(lake.table("t").uri, text, mode="append", schema_mode="merge")
    assert lake.table("t").snapshot().version == version
    assert rows_of(lake) == [row(1, number(7))]
