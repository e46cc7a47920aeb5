"""Default values of columns: where they are filled, and which expressions can be a default."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Field, Schema

import deltasql
from deltasql.exceptions import TxnLogSchemaError
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

T = (
    "CREATE TABLE t (id BIGINT, name STRING DEFAULT 'it''s', n INT DEFAULT 1 + 2 NOT NULL, "
    "tags ARRAY<INT> DEFAULT array(1, 2), twice INT GENERATED ALWAYS AS (n * 2))"
)
NEW = {"name": "it's", "n": 3, "tags": [1, 2], "twice": 6}


def rows(catalog: Catalog, text: str = "SELECT * FROM t ORDER BY id") -> list[dict[str, Any]]:
    return catalog.sql(text).to_pylist()


def features(catalog: Catalog) -> tuple[str, ...]:
    return catalog.table("t").snapshot().protocol.writer_features or ()


def test_omitted_columns_get_their_default(catalog: Catalog) -> None:
    catalog.sql(T)
    assert "allowColumnDefaults" in features(catalog)
    catalog.sql("INSERT INTO t (id) VALUES (1)")
    deltasql.write_deltalake(catalog.table("t").uri, pa.table({"id": [2]}), mode="append")
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [3], "new": ["x"]}), schema_mode="merge")
        four = pa.table({"id": [4], "new": pa.nulls(1, pa.string())})
        tx.write("t", four, mode="overwrite", predicate="id = 4")
    catalog.sql("MERGE INTO t USING (SELECT 5L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN "
                "INSERT (id) VALUES (s.id)")  # fmt: skip
    table = deltasql.DeltaTable(catalog.table("t").uri)
    table.merge(
        pa.table({"id": [1, 6]}), "t.id = s.id", source_alias="s", target_alias="t"
    ).when_matched_update({"new": "'old'"}).when_not_matched_insert_all().execute()
    found = rows(catalog)
    assert [{name: row[name] for name in NEW} for row in found] == [NEW] * 6
    assert [row["new"] for row in found] == ["old", None, "x", None, None, None]


def test_explicit_nulls_and_values_are_kept(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql("INSERT INTO t (id, name, n, tags) VALUES (1, NULL, 9, NULL)")
    assert rows(catalog) == [{"id": 1, "name": None, "n": 9, "tags": None, "twice": 18}]


def test_keyword_sets_the_default(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql("INSERT INTO t VALUES (1, DEFAULT, 5, default, DEFAULT), (2, 'b', DEFAULT, "
                "array(), DEFAULT), (3, DEFAULT, DEFAULT, DEFAULT, DEFAULT)")  # fmt: skip
    assert [(row["name"], row["n"], row["tags"], row["twice"]) for row in rows(catalog)] == [
        ("it's", 5, [1, 2], 10),
        ("b", 3, [], 6),
        ("it's", 3, [1, 2], 6),
    ]
    catalog.sql("UPDATE t SET n = DEFAULT, id = 10 + id, name = 'u' WHERE id = 1")
    with catalog.begin() as tx:
        tx.update("t", {"name": "DEFAULT"}, predicate="id = 2")
    catalog.sql("MERGE INTO t USING (SELECT 3L AS id UNION ALL SELECT 4L) s ON t.id = s.id WHEN "
                "MATCHED THEN UPDATE SET tags = DEFAULT, id = DEFAULT WHEN NOT MATCHED THEN "
                "INSERT (id, name, n) VALUES (s.id, DEFAULT, 0)")  # fmt: skip
    by_id = {row["id"]: (row["name"], row["n"], row["tags"], row["twice"]) for row in rows(catalog)}
    assert by_id == {
        11: ("u", 3, [1, 2], 6),
        2: ("it's", 3, [], 6),
        None: ("it's", 3, [1, 2], 6),
        4: ("it's", 0, [1, 2], 0),
    }


def test_column_named_default_is_a_column_in_expressions(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT DEFAULT 7, `default` BIGINT)")
    catalog.sql("INSERT INTO t VALUES (DEFAULT, 2)")
    catalog.sql("UPDATE t SET id = default + 1")
    assert rows(catalog) == [{"id": 3, "default": 2}]
    catalog.sql("UPDATE t SET id = `default`")
    assert rows(catalog) == [{"id": 2, "default": 2}]


def test_default_is_computed_once_per_statement(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT, at TIMESTAMP DEFAULT current_timestamp())")
    before = datetime.now(UTC)
    batches = (pa.record_batch({"id": [n]}) for n in range(3))
    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches)
    with catalog.begin() as tx:
        tx.write("t", reader)
    (at,) = {row["at"] for row in rows(catalog)}
    assert before - timedelta(seconds=1) <= at <= datetime.now(UTC)


def test_default_is_set_and_dropped_for_new_rows(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT, n INT)")
    catalog.sql("INSERT INTO t (id) VALUES (1)")
    catalog.sql("ALTER TABLE t ALTER COLUMN n SET DEFAULT 7")
    catalog.sql("INSERT INTO t (id) VALUES (2)")
    with catalog.begin() as tx:
        tx.set_column_default("t", "n", "8")
        tx.write("t", pa.table({"id": [3]}))
    table = deltasql.DeltaTable(catalog.table("t").uri)
    table.alter.set_column_default(
        "n", "9", commit_properties=CommitProperties(custom_metadata={"by": "test"})
    )
    catalog.sql("INSERT INTO t (id) VALUES (4)")
    catalog.sql("ALTER TABLE t ALTER COLUMN n DROP DEFAULT")
    catalog.sql("INSERT INTO t (id) VALUES (5)")
    assert [row["n"] for row in rows(catalog)] == [None, 7, 8, 9, None]
    operations = [row.info.operation for row in catalog.table("t").history()]
    assert operations.count("CHANGE COLUMN") == 3  # one of them is part of a WRITE
    with pytest.raises(TxnLogSchemaError, match="n"):
        deltasql.write_deltalake(catalog.table("t").uri, pa.table({"id": [6]}), mode="append")


def test_default_declared_in_field_metadata_is_applied(catalog: Catalog) -> None:
    """As generated columns, defaults are declared in deltalake's API by field metadata."""
    schema = Schema(
        [
            Field("id", "long"),
            Field("n", "integer", metadata={"CURRENT_DEFAULT": "5"}),
        ]
    )
    catalog.create_table("t", schema)
    deltasql.write_deltalake(catalog.table("t").uri, pa.table({"id": [1]}), mode="append")
    assert rows(catalog) == [{"id": 1, "n": 5}]
    table = deltasql.DeltaTable(catalog.table("t").uri)
    table.alter.set_column_metadata("id", {"CURRENT_DEFAULT": "2 * 3"})
    deltasql.write_deltalake(catalog.table("t").uri, pa.table({"n": [1]}), mode="append")
    assert rows(catalog)[-1]["id"] == 6
    with pytest.raises(TxnLogSchemaError, match="not a constant"):
        table.alter.set_column_metadata("id", {"CURRENT_DEFAULT": "n"})


def test_imported_table_with_defaults_is_writable(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.sql(T)
        location = catalog.table("t").location
        catalog.rollback("t")
        catalog.import_table(location, name="t")
        catalog.sql("INSERT INTO t (id) VALUES (1)")
        assert rows(catalog) == [{"id": 1, **NEW}]


def test_columns_without_a_default_must_be_given(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT, n INT DEFAULT 3)")
    with pytest.raises(TxnLogSchemaError, match="id"):
        deltasql.write_deltalake(catalog.table("t").uri, pa.table({"n": [1]}), mode="append")


def test_deltalake_reads_values_filled_from_column_defaults(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.sql(T)
        catalog.sql("INSERT INTO t (id) VALUES (1)")
        path = catalog.table("t").location
        assert deltalake.DeltaTable(path).to_pyarrow_table().to_pylist() == [{"id": 1, **NEW}]
