"""Table features that deltasql and delta-spark use on the same table, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltasql.spark
from deltasql.exceptions import UnsupportedFeatureError
from tests.migrate.corpus_features import row_tracking
from tests.migrate.spark_tables import run
from tests.operations.test_iceberg_compat import ids_in_files
from tests.operations.test_type_widening import widened
from tests.spark.alternation import Alternation

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog

pytestmark = pytest.mark.everything("delta-spark as a second opinion, on table features")


@pytest.fixture
def table(spark: SparkSession, lake: Catalog) -> Alternation:
    return Alternation(spark, lake)


def test_deltasql_and_delta_spark_widen_columns_and_read_each_others_files(
    table: Alternation,
) -> None:
    widened(table.lake)
    assert len(table.rows()) == 2
    table.theirs(
        "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(14, 5)",
        "ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT",
        "INSERT INTO {t} SELECT b, i, f, d * 10, day, n, named_struct('x', 3000000000), l, m, p "
        "FROM {t} WHERE b > 1",
        "UPDATE {t} SET b = 5 WHERE i < 3.4",
    )
    assert len(table.rows()) == 3
    table.ours(
        "ALTER TABLE t ALTER COLUMN p TYPE BIGINT", "UPDATE t SET p = 3000000000 WHERE b > 5"
    )
    table.on_spark("UPDATE t SET f = f + 1 WHERE d < 1.2512", "OPTIMIZE t")
    assert len(table.rows()) == 3
    table.theirs("OPTIMIZE {t}", "DELETE FROM {t} WHERE b = 5")
    assert len(table.rows()) == 2


def test_filters_on_widened_columns_give_the_same_rows(table: Alternation) -> None:
    widened(table.lake)
    frame = table.spark.read.format("delta").load(str(table.path))
    for condition in ("i < 3.4", "f > 0.1", "d = 1.2512", "d < 1.2512", "n < 7.1", "p > 8"):
        wanted = frame.where(condition).count()
        sql = f"SELECT count(*) AS n FROM t WHERE {condition}"
        assert table.lake.sql(sql).to_pylist() == [{"n": wanted}], condition


def ids(table: Alternation) -> dict[int, tuple[int, int]]:
    """Return the row ids and commit versions that delta-spark reads; ours must be the same."""
    table.rows()
    theirs = table.spark.sql(
        "SELECT id, _metadata.row_id AS _row_id, _metadata.row_commit_version AS "
        f"_row_commit_version FROM delta.`{table.path}`"
    )
    with table.lake.begin() as tx:
        embedded = tx.read("t", row_ids=True).to_pylist()
    frame: Any = deltasql.spark.read(table.spark, table.lake.table("t").uri, row_ids=True)
    found = [
        {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in rows}
        for rows in (theirs.collect(), embedded, frame.collect())
    ]
    assert found[0] == found[1] == found[2]
    return found[0]


MERGE = (
    "MERGE INTO {t} AS t USING (SELECT 3L AS id, 'm' AS v UNION ALL SELECT 30L, 'n') AS s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
)


def test_row_ids_stay_the_same_when_deltasql_and_delta_spark_write_in_turn(
    table: Alternation,
) -> None:
    table.ours(
        "CREATE TABLE t (id BIGINT, v STRING) TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    )
    first = ids(table)
    table.theirs("INSERT INTO {t} VALUES (5, 'e'), (6, 'f')", "UPDATE {t} SET v = 'x' WHERE id = 2")
    for step, kept in (
        (lambda: table.ours("UPDATE t SET v = 'y' WHERE id = 1"), (2, 3, 4, 5, 6)),
        (lambda: table.on_spark("UPDATE t SET v = 'z' WHERE id = 5"), (1, 2, 3, 4, 6)),
        (lambda: table.theirs("OPTIMIZE {t}"), (1, 2, 3, 4, 5, 6)),
        (lambda: table.on_spark(MERGE.format(t="t")), (1, 2, 4, 5, 6)),
        (lambda: table.ours("OPTIMIZE t"), (1, 2, 3, 4, 5, 6, 30)),
        (lambda: table.theirs(MERGE.replace("30L", "31L")), (1, 2, 4, 5, 6, 30)),
        (lambda: table.ours(MERGE.format(t="t").replace("30L", "32L")), (1, 2, 4, 5, 6, 30, 31)),
        (lambda: table.on_spark("OPTIMIZE t ZORDER BY (v)"), (1, 2, 3, 4, 5, 6, 30, 31, 32)),
        (lambda: table.theirs("DELETE FROM {t} WHERE id = 4"), (1, 2, 3, 5, 6, 30, 31, 32)),
        (lambda: table.on_spark("DELETE FROM t WHERE id = 5"), (1, 2, 3, 6, 30, 31, 32)),
    ):
        before = ids(table)
        step()
        after = ids(table)
        assert {n: after[n] for n in kept} == {n: before[n] for n in kept}
        assert {n: row_id for n, (row_id, _) in after.items() if n in first} == {
            n: row_id for n, (row_id, _) in first.items() if n in after
        }
        assert len({row_id for row_id, _ in after.values()}) == len(after)
    table.on_spark("OPTIMIZE t")
    assert len(table.lake.table("t").files()) == 1
    assert ids(table) == after


V3 = (
    "'delta.enableIcebergCompatV3' = 'true', 'delta.enableRowTracking' = 'true', "
    "'delta.columnMapping.mode' = 'name'"
)


@pytest.mark.parametrize("creator", ["deltasql", "delta-spark"])
def test_table_with_iceberg_compatibility_3_is_written_in_turn(
    table: Alternation, tmp_path: Path, creator: str
) -> None:
    """Both write the partition column, and the ids of array elements and of row ids, to files."""
    create = (
        "CREATE TABLE {t} (id BIGINT, p INT, l ARRAY<INT>, m MAP<STRING, INT>, at TIMESTAMP) "
        "{u} PARTITIONED BY (p) TBLPROPERTIES (" + V3 + ", 'delta.enableDeletionVectors' = 'true')"
    )
    if creator == "deltasql":
        table.ours(create.format(t="t", u=""))
    else:
        run(table.spark, tmp_path / "foreign", create.format(t="{t}", u="USING delta"))
        table.lake.import_table(str(tmp_path / "foreign"), name="t")
        table.lake.cutover("t")
    at = "TIMESTAMP '2024-05-01 10:00:00'"
    rows = "VALUES ({0}, 1, array({0}), map('k', {0}), " + at + "), ({0} + 1, 2, NULL, NULL, NULL)"
    table.ours("INSERT INTO t " + rows.format(1))
    table.theirs("INSERT INTO {t} " + rows.format(3))
    first = ids(table)
    table.ours("UPDATE t SET l = array(9), p = 3 WHERE id IN (1, 3)", "DELETE FROM t WHERE id = 4")
    table.theirs(
        "UPDATE {t} SET l = array(8) WHERE id IN (2, 3)", "INSERT INTO {t} (id) VALUES (6)"
    )
    with pytest.raises(UnsupportedFeatureError) as refused:
        table.on_spark("UPDATE t SET p = 7")
    assert refused.value.features == ("materializePartitionColumns",)
    table.ours("OPTIMIZE t")
    after = ids(table)
    assert sorted(after) == [1, 2, 3, 6]
    assert all(after[number][0] == first[number][0] for number in (1, 2, 3))
    table.theirs("OPTIMIZE {t}")
    assert ids(table) == after
    assert table.lake.mirror.verify("t", data="rows")[0].ok
    snapshot = table.lake.table("t").snapshot()
    wanted = {}
    for field in snapshot.schema.fields:
        name = field.physical_name("name")
        wanted[name] = field.metadata["delta.columnMapping.id"]
        wanted |= field.metadata.get("delta.columnMapping.nested.ids", {})
    for kind, number in (("Id", 2147483540), ("CommitVersion", 2147483539)):
        key = f"delta.rowTracking.materializedRow{kind}ColumnName"
        wanted[snapshot.metadata.configuration[key]] = number
    for found in ids_in_files(table.lake):
        assert found.items() <= wanted.items()
        assert found.keys() >= {key for key in wanted if not key.startswith("_row-")}


def test_spark_writes_tables_of_delta_spark_with_iceberg_compatibility(
    table: Alternation, tmp_path: Path
) -> None:
    """delta-spark adds nested ids to every column, also if it has no array and no map."""
    create = "CREATE TABLE {t} (id BIGINT, v STRING) USING delta TBLPROPERTIES (%s)"
    run(table.spark, tmp_path / "foreign", create % V3, "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    table.lake.import_table(str(tmp_path / "foreign"), name="t")
    table.lake.cutover("t")
    table.on_spark("UPDATE t SET v = 'x' WHERE id = 1")
    [found] = [each for each in ids_in_files(table.lake) if len(each) > 2]
    assert list(found.values()) == [1, 2, 2147483540, 2147483539]
    assert len(ids(table)) == 2


def test_delta_spark_reads_ids_that_were_added_later(table: Alternation) -> None:
    table.ours(
        "CREATE TABLE t AS SELECT 1L AS id, 'a' AS v",
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    )
    before = ids(table)
    table.theirs("UPDATE {t} SET v = 'x' WHERE id = 1")
    table.ours("UPDATE t SET v = 'y' WHERE id = 2", "OPTIMIZE t")
    after = ids(table)
    assert {n: row_id for n, (row_id, _) in after.items()} == {
        n: row_id for n, (row_id, _) in before.items()
    }


def test_table_of_delta_spark_with_row_ids_becomes_writable(
    table: Alternation, tmp_path: Path
) -> None:
    place = tmp_path / "foreign"
    row_tracking(table.spark, place)
    table.lake.import_table(str(place), name="t")
    table.lake.cutover("t")
    before = ids(table)
    table.ours("UPDATE t SET id = 100 WHERE id = 20", "OPTIMIZE t")
    after = ids(table)
    assert after[100][0] == before[20][0]
    assert {n: after[n] for n in before if n != 20} == {n: before[n] for n in before if n != 20}
    table.theirs("INSERT INTO {t} VALUES (200)")
    assert len(ids(table)) == len(before) + 1


def test_delta_spark_reads_a_table_whose_features_were_dropped(table: Alternation) -> None:
    table.ours(
        "CREATE TABLE t (id BIGINT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.enableRowTracking' = 'true')",
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t DROP FEATURE rowTracking",
        "ALTER TABLE t DROP FEATURE deletionVectors",
    )
    table.theirs("INSERT INTO {t} VALUES (3)", "DELETE FROM {t} WHERE id = 1")
    assert len(table.rows()) == 2
    protocol = table.lake.table("t").snapshot().protocol
    assert protocol.min_reader_version == 1
