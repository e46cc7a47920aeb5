"""Rows of a table with row tracking keep their ids in statements of the Spark catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql.spark
from deltasql.spark.read import read
from tests.migrate.handwritten import HandwrittenTable, column, metadata
from tests.migrate.spark_tables import forget
from tests.operations.maintenance import opened
from tests.selection import EVERYTHING, smoke

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog

Ids = dict[int, tuple[int | None, int | None]]
IDS = "id, _metadata.row_id, _metadata.row_commit_version"
CASES = {
    "plain": ("", {}),
    "partitions and change data": ("PARTITIONED BY (p)", {"delta.enableChangeDataFeed": "true"}),
    "deletion vectors": ("", {"delta.enableDeletionVectors": "true"}),
    "vectors, mapping, change data": (
        "PARTITIONED BY (p)",
        {
            "delta.enableDeletionVectors": "true",
            "delta.columnMapping.mode": "name",
            "delta.enableChangeDataFeed": "true",
        },
    ),
    "mapping by id": ("", {"delta.columnMapping.mode": "id"}),
    "Iceberg, vectors": (
        "",
        {
            "delta.enableIcebergCompatV3": "true",
            "delta.columnMapping.mode": "name",
            "delta.enableDeletionVectors": "true",
        },
    ),
    "rules": ("", {"delta.constraints.c": "id < 1000"}),
}
STATEMENTS = (
    "UPDATE {t} SET v = 'new' WHERE id % 3 = 0",
    "DELETE FROM {t} WHERE id = 4",
    "MERGE INTO {t} AS t USING (SELECT explode(array(5, 6, 70)) AS id) AS s ON t.id = s.id "
    "WHEN MATCHED AND s.id = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged' "
    "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 'x', 'inserted') "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 7 THEN UPDATE SET p = 'moved'",
    "INSERT INTO {t} VALUES (80, 'x', 'appended')",
    "UPDATE {t} SET id = id + 100 WHERE id IN (1, 80)",
    "DELETE FROM {t} WHERE v = 'merged'",
)


def properties(extra: dict[str, str]) -> str:
    found = {"delta.enableRowTracking": "true", **extra}
    return ", ".join(f"'{key}' = '{value}'" for key, value in found.items())


def create(lake: Catalog, name: str, clause: str, extra: dict[str, str]) -> None:
    extra = dict(extra)
    check = extra.pop("delta.constraints.c", None)
    lake.sql(
        f"CREATE TABLE {name} (id INT, p STRING, v STRING) {clause} "
        f"TBLPROPERTIES ({properties(extra)})"
    )
    if check:
        lake.sql(f"ALTER TABLE {name} ADD CONSTRAINT c CHECK ({check})")
    for start in (1, 6):
        rows = ", ".join(f"({n}, 'p{n % 2}', 'v{n}')" for n in range(start, start + 5))
        lake.sql(f"INSERT INTO {name} VALUES {rows}")


def by_id(rows: list[Any]) -> Ids:
    found = {row[0]: (row[1], row[2]) for row in rows}
    assert len(found) == len(rows)
    return found


def ids(lake: Catalog, name: str) -> Ids:
    with lake.begin() as tx:
        found = tx.read(name, ["id"], row_ids=True).to_pylist()
    return by_id([tuple(row.values()) for row in found])


@pytest.mark.parametrize(
    "case",
    smoke(list(CASES), [], "row ids of more tables on Spark"),
)
def test_changed_rows_keep_their_ids_and_all_engines_read_the_same_ids(
    spark: SparkSession, lake: Catalog, sql: Callable[[str], list[Any]], case: str
) -> None:
    for name in ("t", "o"):
        create(lake, name, *CASES[case])
    # `make test` runs one UPDATE and one MERGE.
    for statement in STATEMENTS if EVERYTHING else (STATEMENTS[0], STATEMENTS[2]):
        before = ids(lake, "t")
        sql(statement.format(t="lake.default.t"))
        lake.sql(statement.format(t="o"))
        through_catalog = by_id(sql(f"SELECT {IDS} FROM lake.default.t"))
        assert through_catalog == ids(lake, "t"), statement
        uri = lake.table("t").uri
        frame: Any = read(spark, uri, columns=["id"], row_ids=True)
        assert by_id([tuple(row) for row in frame.collect()]) == through_catalog, statement
        forget(spark)
        theirs = spark.sql(f"SELECT {IDS} FROM delta.`{lake.table('t').location}`")
        assert by_id([tuple(row) for row in theirs.collect()]) == through_catalog, statement
        # The rows in `before` keep their ids; new rows have ids that no row had.
        old = {n: row_id for n, (row_id, _) in before.items()}
        old |= {n + 100: old[n] for n in (1, 80) if n in old}
        new = {row_id for n, (row_id, _) in through_catalog.items() if n not in old}
        assert {n: found for n, (found, _) in through_catalog.items() if n in old} == {
            n: old[n] for n in through_catalog if n in old
        }
        assert new.isdisjoint(old.values()), statement
        # The row commit versions are the same as those of the embedded engine.
        assert {n: version for n, (_, version) in through_catalog.items()} == {
            n: version for n, (_, version) in ids(lake, "o").items()
        }, statement
    lake.sql("OPTIMIZE t")
    assert by_id(sql(f"SELECT {IDS} FROM lake.default.t")) == through_catalog
    assert lake.mirror.verify("t")[0].ok


@pytest.mark.parametrize("on_catalog", [True, False])
def test_columns_with_row_ids_have_the_field_ids_of_iceberg_in_files_of_spark(
    spark: SparkSession, lake: Catalog, sql: Callable[[str], list[Any]], on_catalog: bool
) -> None:
    compat = {"delta.enableIcebergCompatV3": "true", "delta.columnMapping.mode": "name"}
    create(lake, "t", "", compat)
    if on_catalog:
        sql("UPDATE lake.default.t SET v = 'new'")
    else:
        deltasql.spark.sql(spark, "UPDATE t SET v = 'new'", catalog=lake)
    table = lake.table("t")
    for path in table.files()["path"].to_pylist():
        fields = pq.read_schema(Path(table.location) / path)
        found = [int(field.metadata[b"PARQUET:field_id"]) for field in fields]
        assert found == [1, 2, 3, 2147483540, 2147483539]


def test_ids_are_metadata_columns_that_can_be_filtered_and_pruned(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    create(lake, "t", "PARTITIONED BY (p)", {"delta.enableDeletionVectors": "true"})
    lake.sql("DELETE FROM t WHERE id = 2")
    found = ids(lake, "t")
    assert sql("SELECT _metadata.row_id FROM lake.default.t ORDER BY 1") == [
        (row_id,) for row_id, _ in sorted(found.values())
    ]
    row_id, version = found[9]
    where = f"_metadata.row_id = {row_id} AND _metadata.row_commit_version > {version - 1}"
    assert sql(f"SELECT id, v FROM lake.default.t WHERE {where}") == [(9, "v9")]
    assert sql("SELECT max(_metadata.row_id), count(*) FROM lake.default.t") == [(9, 9)]
    [(url, place)] = sql("SELECT _file, _pos FROM lake.default.t WHERE id = 9")
    where_file = f"_file = '{url}' AND _pos = {place}"
    assert sql(f"SELECT id FROM lake.default.t WHERE {where_file}") == [(9,)]
    places = sql("SELECT id, _pos, _metadata.row_id, _file FROM lake.default.t WHERE p = 'p1'")
    assert {n: row_id for n, _, row_id, _ in places} == {
        n: row_id for n, (row_id, _) in found.items() if n % 2
    }
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    sql(f"UPDATE lake.default.t SET v = 'x' WHERE {where}")
    assert ids(lake, "t")[9] == (row_id, 5)
    feed = pa.table(opened(lake).load_cdf(starting_version=5)).to_pylist()
    assert sorted((row["id"], row["v"], row["_change_type"]) for row in feed) == [
        (9, "v9", "update_preimage"),
        (9, "x", "update_postimage"),
    ]


def test_rows_of_an_open_transaction_have_no_ids_yet(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    create(lake, "t", "", {})
    before = ids(lake, "t")
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.t VALUES (50, 'p', 'new')")
    sql("UPDATE lake.default.t SET v = 'twice' WHERE id IN (3, 50)")
    inside = by_id(sql(f"SELECT {IDS} FROM lake.default.t"))
    assert inside == {**before, 3: (before[3][0], None), 50: (None, None)}
    sql("CALL lake.system.commit()")
    after = ids(lake, "t")
    assert {n: after[n] for n in before if n != 3} == {n: before[n] for n in before if n != 3}
    assert after[3] == (before[3][0], 3)
    assert after[50][1] == 3
    assert len({row_id for row_id, _ in after.values()}) == len(after)


def test_rows_of_a_file_without_a_commit_version_have_none(
    spark: SparkSession, lake: Catalog, sql: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    """The protocol demands the version, but a writer may have left it out."""
    table = HandwrittenTable(tmp_path / "source")
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["domainMetadata", "rowTracking"],
    }
    configuration = {"delta.enableRowTracking": "true"}
    for kind in ("Id", "CommitVersion"):
        configuration[f"delta.rowTracking.materializedRow{kind}ColumnName"] = f"row-{kind}"
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":2}'}
    table.commit(
        {"protocol": protocol},
        metadata(column("id"), configuration=configuration),
        {"domainMetadata": {**domain, "removed": False}},
        table.add("a.parquet", pa.table({"id": [1, 2, 3]}), baseRowId=0, stats='{"numRecords":3}'),
    )
    lake.import_table(table.path, name="t")
    expected = {1: (0, None), 2: (1, None), 3: (2, None)}
    assert by_id(sql(f"SELECT {IDS} FROM lake.default.t")) == expected
    assert ids(lake, "t") == expected
    frame: Any = read(spark, lake.table("t").uri, row_ids=True)
    assert by_id([tuple(row) for row in frame.collect()]) == expected


def test_user_column_named_metadata_does_not_hide_the_row_ids(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, _metadata STRING) "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    lake.sql("INSERT INTO t VALUES (1, 'mine')")
    assert sql("SELECT _metadata, __metadata.row_id FROM lake.default.t") == [("mine", 0)]
    sql("UPDATE lake.default.t SET id = 2")
    assert ids(lake, "t") == {2: (0, 2)}
