"""UPDATE, DELETE and MERGE through the Spark catalog, compared with the same SQL in Python."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import deltasql
from deltasql.serve.service_file import write_service_file
from tests.oracles.fixed_set import SMALL
from tests.oracles.states import arrow_rows
from tests.selection import smoke
from tests.serve.client import losing_responses
from tests.spark.support import add_catalog, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service
    from tests.oracles.writing import Written

MORE = "row-level statements of the Spark catalog on more tables and in more races"
# The rows of `rules` were added without a check and break the rules.
KEPT = [make for make in SMALL if make.__name__ != "rules"]
MERGE = (
    "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id "
    "WHEN MATCHED AND s.x < 0 THEN DELETE "
    "WHEN MATCHED AND s.x > 100 THEN UPDATE SET x = s.x + t.x "
    "WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED AND s.id < 95 THEN INSERT * "
    "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, -1) "
    "WHEN NOT MATCHED BY SOURCE AND t.x = 7 THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE AND t.id > 30 THEN UPDATE SET x = 0"
)


def create_pair(
    lake: Catalog, *, partitioned: bool = False, feed: bool = False, vectors: bool = False
) -> None:
    """Create the tables `t` for Spark and `o` for Python, with the same rows, and a source `s`."""
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    if vectors:
        properties["delta.enableDeletionVectors"] = "true"
    rows = [numbers(start, start + 20) for start in (0, 20, 40)]
    for name in ("t", "o"):
        with lake.begin() as tx:
            by = ["p"] if partitioned else []
            tx.create_table(name, rows[0].schema, partition_by=by, properties=properties)
        for each in rows:
            with lake.begin() as tx:
                tx.write(name, each)
    source = pa.concat_tables([numbers(50, 70), numbers(90, 100)])
    with lake.begin() as tx:
        tx.write("s", source.set_column(1, "x", pa.array([-1, 200, 5] * 10, pa.int64())))


def numbers(start: int, end: int) -> pa.Table:
    ids = range(start, end)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([n % 10 for n in ids], pa.int64()),
            "p": pa.array([None if n % 11 == 0 else f"p{n % 3}" for n in ids]),
        }
    )


@pytest.fixture
def both(lake: Catalog, sql: Any) -> Callable[[str], None]:
    """Run a statement on `t` through Spark and on `o` in Python, and compare the tables."""

    def run(statement: str) -> None:
        before = lake.table("t").version()
        sql(statement.format(t="lake.default.t", s="lake.default.s"))
        lake.sql(statement.format(t="o", s="s"))
        assert mirrored(lake, "t") == mirrored(lake, "o"), statement
        assert lake.table("t").version() == lake.table("o").version(), statement
        if lake.table("t").version() > before:
            assert described(lake, "t") == described(lake, "o"), statement

    return run


def metrics_of(lake: Catalog, name: str) -> dict[str, int]:
    """Return the metrics of the last commit; Spark does not count the source rows of a MERGE."""
    metrics = dict(lake.table(name).history(1)[0].info.operation_metrics or {})
    metrics.pop("num_source_rows", None)
    return metrics


def described(lake: Catalog, name: str) -> dict[str, Any]:
    """Return the operation of the last commit and its row counts, which do not depend on files."""
    info, metrics = lake.table(name).history(1)[0].info, metrics_of(lake, name)
    return {
        "operation": info.operation,
        "parameters": info.operation_parameters,
        "keys": sorted(metrics),
        "rows": {
            key: value
            for key, value in metrics.items()
            if key.endswith(("updated_rows", "deleted_rows", "_updated", "_deleted", "_inserted"))
        },
    }


def feed(lake: Catalog, name: str) -> list[dict[str, Any]]:
    """Return the change data of the last version."""
    table = deltalake.DeltaTable(lake.table(name).location)
    last = table.version()
    rows = pa.table(table.load_cdf(starting_version=last, ending_version=last))
    return sorted(rows.drop_columns(["_commit_timestamp"]).to_pylist(), key=str)


def test_statements_change_rows_like_the_same_sql_in_python(lake: Catalog, both: Any) -> None:
    create_pair(lake)
    both("UPDATE {t} SET x = x + 100, p = 'new' WHERE id BETWEEN 15 AND 25 OR p IS NULL")
    assert metrics_of(lake, "t")["num_copied_rows"] == metrics_of(lake, "o")["num_copied_rows"]
    both("DELETE FROM {t} WHERE id % 7 = 3 AND x < 50")
    both("DELETE FROM {t} WHERE id >= 1000")
    both(MERGE)


@pytest.mark.everything(MORE)
def test_update_of_a_partition_column_moves_rows_and_writes_change_data(
    lake: Catalog, both: Any
) -> None:
    create_pair(lake, partitioned=True, feed=True)
    both("UPDATE {t} SET p = IF(id % 2 = 0, NULL, concat('q', p)), x = -x WHERE id % 5 = 1")
    assert feed(lake, "t") == feed(lake, "o")
    both(MERGE)
    assert feed(lake, "t") == feed(lake, "o")
    both("DELETE FROM {t} WHERE id % 2 = 0")
    assert feed(lake, "t") == feed(lake, "o")


MARKING = (
    "UPDATE {t} SET x = x + 100 WHERE id BETWEEN 15 AND 22",
    "DELETE FROM {t} WHERE id % 7 = 3",
    "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id WHEN MATCHED AND s.x < 0 THEN DELETE "
    "WHEN MATCHED AND s.x > 100 THEN UPDATE SET x = s.x + t.x WHEN NOT MATCHED THEN INSERT *",
    "DELETE FROM {t} WHERE id = 41 OR id > 94",
)


def test_rows_are_deleted_by_vectors_if_the_table_enables_them(
    lake: Catalog, both: Any, sql: Any
) -> None:
    create_pair(lake, vectors=True)
    before = {row["path"] for row in lake.table("t").files().to_pylist()}
    for statement in MARKING:
        both(statement)
    files = {row["path"]: row["deletion_vector"] for row in lake.table("t").files().to_pylist()}
    assert before < files.keys()
    assert all(files[path] for path in before)
    sql("DELETE FROM lake.default.t WHERE id < 30")
    lake.sql("DELETE FROM o WHERE id < 30")
    assert mirrored(lake, "t") == mirrored(lake, "o")
    assert len(before - {row["path"] for row in lake.table("t").files().to_pylist()}) == 1
    assert lake.purge("t")["numFilesRemoved"] > 0


@pytest.mark.everything(MORE)
@pytest.mark.parametrize("partitioned", [False, True])
def test_change_data_has_the_rows_that_vectors_delete(
    lake: Catalog, sql: Any, partitioned: bool
) -> None:
    """In small files, Python rewrites rows that Spark marks, so only rows and changes are equal."""
    create_pair(lake, partitioned=partitioned, feed=True, vectors=True)
    for statement in (*MARKING, MERGE):
        sql(statement.format(t="lake.default.t", s="lake.default.s"))
        lake.sql(statement.format(t="o", s="s"))
        assert mirrored(lake, "t") == mirrored(lake, "o"), statement
        assert feed(lake, "t") == feed(lake, "o"), statement


def test_metadata_columns_identify_rows(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t AS SELECT id, 'a' AS _POS FROM range(0, 3, 1, 1)")
    assert sql("SELECT * FROM lake.default.t ORDER BY id")[2] == (2, "a")
    rows = sql("SELECT id, _file, __pos, _pos FROM lake.default.t WHERE id > 0 ORDER BY id")
    (file,) = lake.table("t").files().to_pylist()
    assert [(row[0], row[2], row[3]) for row in rows] == [(1, 1, "a"), (2, 2, "a")]
    assert all(row[1].endswith(file["path"]) for row in rows)
    sql("UPDATE lake.default.t SET _POS = 'b' WHERE id = 1")
    assert [row["_POS"] for row in mirrored(lake, "t")] == ["a", "b", "a"]


def change_first(uri: str, statement: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that commits a statement when its rows are read."""

    def commit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deltasql.sql(uri, statement)
        yield from batches

    return commit


@contextmanager
def temporary_view(frame: DataFrame) -> Iterator[None]:
    """A view `late` of a DataFrame; other tests use the same session."""
    frame.createOrReplaceTempView("late")
    try:
        yield
    finally:
        frame.sparkSession.catalog.dropTempView("late")


def test_concurrent_change_of_a_file_that_was_read_is_a_conflict(
    spark: SparkSession, lake: Catalog, name: str, sql: Any
) -> None:
    create_pair(lake)
    commit = change_first(lake.uri.to_string(), "UPDATE t SET x = 55 WHERE id = 50")
    late = spark.range(50, 51, numPartitions=1).mapInArrow(commit, "id long")
    with temporary_view(late), pytest.raises(IllegalArgumentException, match=r"Concurrent.*Error"):
        sql("MERGE INTO lake.default.t t USING late ON t.id = late.id WHEN MATCHED THEN DELETE")
    assert sql("SELECT x FROM lake.default.t WHERE id = 50") == [(55,)]


@pytest.mark.everything(MORE)
def test_concurrent_merges_do_not_insert_a_row_twice(
    spark: SparkSession, lake: Catalog, sql: Any
) -> None:
    """Spark plans a MERGE that only inserts as an append, which alone would be no conflict."""
    create_pair(lake)
    merge = "MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    commit = change_first(lake.uri.to_string(), merge.format(t="t", s="s"))
    schema = "id long, x long, p string"
    late = spark.sql("SELECT 95L AS id, 1L AS x, 'a' AS p").mapInArrow(commit, schema)
    with temporary_view(late), pytest.raises(IllegalArgumentException, match=r"Concurrent.*Error"):
        sql(merge.format(t="lake.default.t", s="late"))


@pytest.mark.everything(MORE)
def test_merge_that_only_inserts_is_recorded_as_a_merge(lake: Catalog, both: Any) -> None:
    create_pair(lake)
    both("MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN NOT MATCHED AND s.x > 0 THEN INSERT *")


@pytest.mark.everything(MORE)
def test_conditions_can_contain_subqueries(lake: Catalog, sql: Any) -> None:
    create_pair(lake)
    sql("DELETE FROM lake.default.t WHERE id IN (SELECT id FROM lake.default.s WHERE x < 0)")
    ids = {row["id"] for row in mirrored(lake, "s") if row["x"] < 0}
    assert {row["id"] for row in mirrored(lake, "t")} == set(range(60)) - ids
    sql(
        "UPDATE lake.default.t SET x = (SELECT max(id) FROM lake.default.s) "
        "WHERE EXISTS (SELECT 1 FROM lake.default.s AS s WHERE s.id = t.id)"
    )
    changed = {row["id"] for row in mirrored(lake, "t") if row["x"] == 99}
    assert changed == {row["id"] for row in mirrored(lake, "s")} & set(range(60)) - ids


@pytest.mark.everything(MORE)
def test_merge_with_several_matches_deletes_a_row_once_and_rejects_an_update(
    lake: Catalog, sql: Any
) -> None:
    create_pair(lake)
    twice = "(SELECT * FROM lake.default.s UNION ALL SELECT * FROM lake.default.s) AS s"
    on = f"MERGE INTO lake.default.t AS t USING {twice} ON t.id = s.id WHEN MATCHED THEN"
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        sql(f"{on} UPDATE SET x = 0")
    sql(f"{on} DELETE")
    assert sorted(row["id"] for row in mirrored(lake, "t")) == list(range(50))
    assert described(lake, "t")["rows"]["num_target_rows_deleted"] == 10


@pytest.mark.everything(MORE)
@pytest.mark.parametrize("clause", ["MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"])
def test_merge_with_schema_evolution_is_refused(lake: Catalog, sql: Any, clause: str) -> None:
    sql("CREATE TABLE lake.default.t (id INT)")
    sql("INSERT INTO lake.default.t VALUES (1)")
    with pytest.raises(Exception, match=r"MERGE WITH SCHEMA EVOLUTION needs Spark 4\.2"):
        sql(
            "MERGE WITH SCHEMA EVOLUTION INTO lake.default.t USING (SELECT 1 AS id, 2 AS new) AS s "
            f"ON t.id = s.id WHEN {clause}"
        )
    assert lake.table("t").version() == 1


def test_statements_add_columns_and_rows_in_one_commit(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path
) -> None:
    name = add_catalog(
        spark, kind="TransactionalDeltaSqlCatalog", service=str(tmp_path / "service.json")
    )
    table = f"{name}.default.t"
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id, named_struct('a', 1) AS s")
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} AS t USING (SELECT 1 AS id, "
        "named_struct('a', 2, 'b', 'x') AS s, true AS new) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 2L AS id, 7 AS n")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 1 / 0 AS bad")
    assert mirrored(lake, "t") == [
        {"id": 1, "s": {"a": 2, "b": "x"}, "new": True, "n": None},
        {"id": 2, "s": None, "new": None, "n": 7},
    ]
    operations = [commit.info.operation for commit in lake.table("t").history()]
    assert operations == ["WRITE", "MERGE", "CREATE TABLE AS SELECT"]


@pytest.mark.everything(MORE)
def test_null_in_a_not_null_column_is_refused(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t (id INT NOT NULL, x INT)")
    sql("INSERT INTO lake.default.t VALUES (1, NULL), (2, 2)")
    for value in ("x", "NULL"):
        with pytest.raises(Exception, match="NOT_NULL_ASSERT_VIOLATION"):
            sql(f"UPDATE lake.default.t SET id = {value}")
    sql("UPDATE lake.default.t SET id = x WHERE x IS NOT NULL")
    assert lake.table("t").version() == 2


@pytest.mark.everything(MORE)
def test_new_rows_are_checked_against_constraints_and_generated_columns(
    lake: Catalog, both: Any, sql: Any
) -> None:
    twice = deltalake.Field("x2", "long", metadata={"delta.generationExpression": "x * 2"})
    columns = [deltalake.Field("id", "long"), deltalake.Field("x", "long"), twice]
    for name in ("t", "o"):
        lake.create_table(name, deltalake.Schema(columns))
        for start in (0, 10):
            with lake.begin() as tx:
                tx.write(name, numbers(start, start + 10).drop_columns(["p"]))
        with lake.begin() as tx:
            tx.add_constraint(name, {"small": "x < 100"})
    with lake.begin() as tx:
        tx.write("s", pa.table({"id": [3, 50], "x": [30, 40]}))
    both("UPDATE {t} SET x = x + 10 WHERE id = 5")
    both(
        "MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = s.x "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, s.x)"
    )
    both("DELETE FROM {t} WHERE id = 50")
    assert all(row["x2"] == row["x"] * 2 for row in mirrored(lake, "t"))
    for change in ("x = 100", "x2 = 5"):
        with pytest.raises(IllegalArgumentException, match="2 rows failed validation"):
            sql(f"UPDATE lake.default.t SET {change} WHERE id IN (8, 9)")
    assert lake.table("t").version() == lake.table("o").version()


@pytest.mark.everything(MORE)
def test_append_only_table_keeps_its_rows(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t (id INT) TBLPROPERTIES ('delta.appendOnly' = 'true')")
    sql("INSERT INTO lake.default.t VALUES (1)")
    with pytest.raises(IllegalArgumentException, match="append-only"):
        sql("DELETE FROM lake.default.t WHERE id = 1")


@pytest.mark.everything(MORE)
def test_update_is_applied_once_although_its_response_is_lost(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path
) -> None:
    create_pair(lake)
    with losing_responses(service, "write_commit", times=2) as (address, lost):
        write_service_file(tmp_path / "proxy.json", {**service.access, "address": address})
        name = add_catalog(spark, service=str(tmp_path / "proxy.json"))
        spark.sql(f"UPDATE {name}.default.t SET x = x + 1 WHERE id = 5")
    assert lost == ["write_commit", "write_commit"]
    lake.sql("UPDATE o SET x = x + 1 WHERE id = 5")
    assert mirrored(lake, "t") == mirrored(lake, "o")


@pytest.mark.everything(MORE)
def test_failed_statement_leaves_no_files(lake: Catalog, sql: Any, tmp_path: Path) -> None:
    create_pair(lake)
    before = set((tmp_path / "lake").rglob("*.parquet"))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sql("UPDATE lake.default.t SET x = 1 DIV (id - 30) WHERE id > 5")
    assert set((tmp_path / "lake").rglob("*.parquet")) == before
    assert lake.table("t").version() == lake.table("o").version()


@pytest.mark.parametrize(
    "make", smoke(KEPT, ("deletion_vectors",), MORE, named=True), ids=lambda make: make.__name__
)
def test_update_of_all_rows_to_the_same_values_changes_none(
    spark: SparkSession, lake: Catalog, name: str, make: Callable[[Catalog], list[Written]]
) -> None:
    """Some of the tables have mapped columns, deletion vectors or partitions of every type."""
    for written in make(lake):
        table = f"{name}.`{written.table.namespace}`.`{written.table.name}`"
        column = written.table.snapshot().schema.names[0]
        spark.sql(f"UPDATE {table} SET `{column}` = `{column}`")
        assert arrow_rows(spark.sql(f"SELECT * FROM {table}").toArrow()) == written.states[-1]
        with lake.begin() as tx:
            assert arrow_rows(tx.read(written.table.full_name)) == written.states[-1]


@pytest.mark.everything(MORE)
@pytest.mark.parametrize("partitioned", [False, True])
def test_random_statements_change_rows_like_the_same_sql_in_python(
    lake: Catalog, both: Any, partitioned: bool
) -> None:
    chosen = random.Random(partitioned)
    create_pair(lake, partitioned=partitioned, feed=True)
    for _ in range(12):
        low = chosen.randrange(100)
        statement = chosen.choice(
            [
                f"UPDATE {{t}} SET x = x + {low} WHERE id > {low} AND x IS NOT NULL",
                f"UPDATE {{t}} SET p = 'p{low % 4}' WHERE id % 4 = {low % 4}",
                f"DELETE FROM {{t}} WHERE id BETWEEN {low} AND {low + 9}",
                f"DELETE FROM {{t}} WHERE x = {low % 10} OR p = 'p{low % 4}'",
                f"MERGE INTO {{t}} t USING {{s}} s ON t.id = s.id + {low % 30} "
                "WHEN MATCHED AND s.x > 100 THEN DELETE WHEN MATCHED THEN UPDATE SET p = s.p "
                f"WHEN NOT MATCHED THEN INSERT (id, x, p) VALUES (s.id + {low % 30}, s.x, s.p)",
                MERGE,
            ]
        )
        both(statement)
        assert feed(lake, "t") == feed(lake, "o"), statement
