"""Unmodified delta-spark jobs commit to the tables of a catalog through its database."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions

import deltasql.spark
from deltasql.exceptions import CommitConflictError
from deltasql.phases import hooked
from deltasql.serve import Service
from deltasql.serve.service_file import write_service_file
from tests.mirror.support import (
    commit_lines,
    commit_path,
    forget_published,
    log_names,
    published_versions,
)
from tests.serializability.record import Transaction
from tests.serializability.rows import APPEND, OVERWRITE, UPSERT, Change, RowLog, row_problems
from tests.serve.client import losing_responses
from tests.spark.support import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog

SERVICE, URI = "deltasql.logStore.service", "deltasql.logStore.uri"
MORE = "delta-spark through the LogStore, beyond append, race and repair"


@pytest.fixture
def path(lake: Catalog, bridge: Service) -> str:
    """The location of the table `t` with three rows in version 0."""
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return lake.table("t").location


def ids(lake: Catalog, version: int | None = None) -> list[int]:
    """Return the ids of the table, as deltasql reads them."""
    return sorted(row["id"] for row in rows_at(lake, version))


def rows_at(lake: Catalog, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of the table, as deltasql reads them."""
    return deltasql.DeltaTable(lake.table("t").uri, version).to_pyarrow_table().to_pylist()


def append(spark: SparkSession, path: str, *new: int, **options: str) -> None:
    """Append rows with delta-spark."""
    rows = spark.createDataFrame([(each, "new") for each in new], "id BIGINT, name STRING")
    rows.coalesce(1).write.format("delta").options(**options).mode("append").save(path)


def assert_published(lake: Catalog) -> None:
    """Fail if the log of the table differs from the database at any version."""
    (report,) = lake.mirror.verify("t", versions="all", data="rows")
    assert report.differences == []
    assert report.first_foreign is None
    assert report.log_version == report.sql_version == lake.table("t").version()


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_append_of_delta_spark_is_a_commit_of_the_database(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    append(spark, path, 4, userMetadata="nightly")
    assert ids(lake) == [1, 2, 3, 4]
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [5], "name": ["d"]}))
    append(spark, path, 6)
    assert spark.read.format("delta").load(path).count() == 6
    infos = [row.info for row in lake.table("t").history()]
    assert [info.user_metadata for info in infos] == [None, None, "nightly", None]
    assert "Delta-Lake" in infos[0].engine_info
    assert infos[0].txn_id == commit_lines(path, 3)[0]["commitInfo"]["txnId"]
    assert_published(lake)


def test_delta_spark_and_python_commit_in_a_race(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    """Python commits after delta-spark has computed its commit, and before it is ratified."""
    interfering = threading.Event()

    def interfere(phase: str) -> None:
        # The first commit of delta-spark is about to be ratified as version 1.
        if phase == "staged" and not interfering.is_set():
            interfering.set()
            with lake.begin() as tx:
                tx.write("t", pa.table({"id": [5], "name": ["python"]}))

    with hooked(interfere):
        append(spark, path, 4)
    history = lake.table("t").history()
    assert [(row.version, "Delta" in row.info.engine_info) for row in history[:2]] == [
        (2, True),
        (1, False),
    ]
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert_published(lake)


def test_listing_publishes_commits_that_a_crash_left_unpublished(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [4], "name": ["d"]}))
    forget_published(lake.store, lake.table("t").row, from_version=1)
    lake.mirror.publisher.forget()
    for name in log_names(path):
        if name.startswith(f"{1:020d}"):
            (Path(path) / "_delta_log" / name).unlink()
    assert spark.read.format("delta").load(path).count() == 4
    append(spark, path, 5)
    assert published_versions(path) == [0, 1, 2]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_lost_response_commits_once(
    spark: SparkSession, lake: Catalog, path: str, bridge: Service, tmp_path: Path
) -> None:
    with losing_responses(bridge, "log_commit", times=2) as (address, lost):
        file = tmp_path / "losing.json"
        write_service_file(file, {**bridge.access, "address": address})
        spark.conf.set(SERVICE, str(file))
        append(spark, path, 4)
        assert len(lost) == 2
    assert (lake.table("t").version(), ids(lake)) == (1, [1, 2, 3, 4])


@pytest.mark.everything(MORE)
def test_log_store_does_not_change_writes_to_unregistered_and_followed_tables(
    spark: SparkSession, lake: Catalog, bridge: Service, tmp_path: Path
) -> None:
    path = str(tmp_path / "free")
    append(spark, path, 1)
    append(spark, path, 2)
    assert not lake.store.query("list_tables", namespace=None)
    assert published_versions(path) == [0, 1]
    lake.follow(path, name="t")
    append(spark, path, 3)
    lake.follow(path, name="t")
    assert ids(lake) == [1, 2, 3]
    lake.cutover("t")  # from here on, the database decides
    append(spark, path, 4)
    assert lake.table("t").version() == 4
    assert ids(lake) == [1, 2, 3, 4]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_update_delete_and_merge_of_delta_spark(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    spark.sql(f"UPDATE delta.`{path}` SET name = 'z' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT id + 2 AS id FROM range(3)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    expected = [(1, "z"), (2, None), (3, "m"), (4, None)]
    assert sorted((row["id"], row["name"]) for row in rows_at(lake)) == expected
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")
    changes = deltasql.DeltaTable(lake.table("t").uri).load_cdf(5)
    found = [(row["id"], row["_change_type"]) for row in pa.table(changes).to_pylist()]
    assert found == [(4, "delete")]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_deletion_vectors_of_delta_spark(spark: SparkSession, lake: Catalog, path: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    assert next(iter(lake.table("t").scan().files)).deletion_vector is not None
    assert ids(lake) == [1, 3]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_schema_changes_of_delta_spark(spark: SparkSession, lake: Catalog, path: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (day DATE)")
    more = spark.sql("SELECT 4L AS id, 'd' AS name, DATE'2024-05-01' AS day, 1.5D AS price")
    more.write.format("delta").option("mergeSchema", "true").mode("append").save(path)
    names = [field.name for field in lake.table("t").snapshot().schema.fields]
    assert names == ["id", "name", "day", "price"]
    replaced = spark.range(2).withColumn("part", functions.lit("p"))
    (
        replaced.write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .partitionBy("part")
        .save(path)
    )
    assert lake.table("t").snapshot().partition_columns == ("part",)
    assert ids(lake) == [0, 1]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_streaming_sink_of_delta_spark_continues_after_a_restart(
    spark: SparkSession, lake: Catalog, path: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    schema = "id BIGINT, name STRING"
    for first in (10, 20):
        batch = spark.range(first, first + 2).selectExpr("id", "'s' AS name").coalesce(1)
        batch.write.mode("append").json(str(source))
        query = (
            spark.readStream.schema(schema)
            .json(str(source))
            .writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(path)
        )
        assert query.awaitTermination(120)
    assert ids(lake) == [1, 2, 3, 10, 11, 20, 21]
    assert len(lake.table("t").snapshot().transactions()) == 1
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_delta_spark_writes_checkpoints_and_continues_after_a_log_cleanup(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    """Checkpoints and the log clean-up of delta-spark do not use the LogStore."""
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.checkpointInterval = 2)")
    for number in range(10, 15):
        append(spark, path, number)
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    log.checkpoint()
    assert f"{6:020d}.checkpoint.parquet" in log_names(path)
    assert_published(lake)
    # The log clean-up deletes the files before a checkpoint, once they are old enough.
    for each in (Path(path) / "_delta_log").iterdir():
        if each.name < f"{4:020d}":
            each.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    append(spark, path, 20)
    assert spark.read.format("delta").load(path).count() == 9
    assert ids(lake) == [1, 2, 3, *range(10, 15), 20]
    assert ids(lake, 2) == [1, 2, 3, 10]  # the database still has every version
    (report,) = lake.mirror.verify("t")
    assert report.differences == []


@pytest.mark.everything(MORE)
def test_vacuum_of_delta_spark_keeps_files_of_the_latest_version(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    # The commit is not published when the vacuum starts.
    with lake.begin() as tx:
        tx.delete("t", "id = 1")
    forget_published(lake.store, lake.table("t").row, from_version=1)
    lake.mirror.publisher.forget()
    commit_path(path, 1).unlink()
    wanted = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Delta lists the folder with this many tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    with settings(spark, wanted):
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert ids(lake) == [2, 3]
    assert published_versions(path)[:2] == [0, 1]
    (report,) = lake.mirror.verify("t", data="rows")
    assert report.differences == []


@pytest.mark.everything(MORE)
def test_path_writer_without_the_log_store_is_detected(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    shutil.copy(commit_path(path, 0), commit_path(path, 1))
    with pytest.raises(IllegalArgumentException, match="was written without the database"):
        append(spark, path, 4)
    assert lake.table("t").version() == 0
    lake.mirror.reject("t")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    append(spark, path, 4)
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.everything(MORE)
def test_service_that_the_log_store_started_is_started_again(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    spark.conf.unset(SERVICE)
    spark.conf.set(URI, lake.uri.to_string())
    try:
        before = set(psutil.Process().children(recursive=True))
        append(spark, path, 4)
        for child in set(psutil.Process().children(recursive=True)) - before:
            if "deltasql.serve" in child.cmdline():
                child.kill()
                child.wait()
        append(spark, path, 5)
    finally:
        spark.conf.unset(URI)
    assert ids(lake) == [1, 2, 3, 4, 5]


@pytest.mark.everything(MORE)
def test_log_store_finds_a_service_restarted_at_another_address(
    spark: SparkSession, lake: Catalog, bridge: Service, path: str, tmp_path: Path
) -> None:
    append(spark, path, 4)
    bridge.stop()
    again = Service(lake).start(tmp_path / "service.json")
    append(spark, path, 5)
    again.stop()
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert_published(lake)


@pytest.mark.everything(MORE)
def test_error_names_a_missing_option_or_a_password_in_the_uri(
    spark: SparkSession, bridge: Service, tmp_path: Path
) -> None:
    spark.conf.unset(SERVICE)
    with pytest.raises(IllegalArgumentException, match=r"Set spark.hadoop.deltasql.logStore.uri"):
        append(spark, str(tmp_path / "free"), 1)
    spark.conf.set(URI, "deltasql://postgres/etl:secret@db/lake")
    try:
        with pytest.raises(IllegalArgumentException, match="contains a password") as refused:
            append(spark, str(tmp_path / "free"), 1)
        assert "secret" not in str(refused.value)
    finally:
        spark.conf.unset(URI)


@pytest.mark.everything(MORE)
def test_races_of_delta_spark_and_python_have_a_serial_order(
    spark: SparkSession, lake: Catalog, path: str
) -> None:
    """The commit of a change is found by its user metadata or its transaction id."""
    attempts: list[tuple[str, Change, bool]] = []
    clients = [
        threading.Thread(target=client, args=(spark, lake, path, number, attempts))
        for number in range(4)
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    history = {row.info.user_metadata or row.txn_id: row for row in lake.table("t").history()}
    versions = [
        (name, Counter((row["id"], "", row["name"]) for row in rows_at(lake, commit.version)))
        for name, commit in reversed(history.items())
    ]
    created, rows = versions[0]
    changes = {created: Change(OVERWRITE, tuple(rows.elements()), 0)}
    for name, change, is_committed in attempts:
        assert (name in history) == is_committed, name
        if is_committed:
            read_version = history[name].info.read_version or 0
            changes[name] = Change(change.kind, change.rows, read_version)
    assert changes.keys() == history.keys()
    transactions = [Transaction(each, 0, changes={"t": changes[each]}) for each in changes]
    assert row_problems(transactions, {"t": RowLog(versions, serializable=False)}) == []
    assert_published(lake)


def client(
    spark: SparkSession,
    lake: Catalog,
    path: str,
    number: int,
    attempts: list[tuple[str, Change, bool]],
) -> None:
    """Change the table several times: two clients with delta-spark, two with deltasql."""
    session = spark.newSession()
    session.conf.set(SERVICE, str(spark.conf.get(SERVICE)))
    for turn, kind in enumerate((APPEND, UPSERT, APPEND, UPSERT)):
        by = f"{number}-{turn}"
        key = 100 + 10 * number + turn if kind == APPEND else 1 + turn % 3
        change = Change(kind, ((key, "", by),), 0)
        if number % 2:
            attempts.append(change_with_deltasql(lake, change))
            continue
        try:
            change_with_delta_spark(session, path, change, by)
            attempts.append((by, change, True))
        except Exception as error:
            if "DELTA_CONCURRENT" not in str(error):
                raise
            attempts.append((by, change, False))


def change_with_deltasql(lake: Catalog, change: Change) -> tuple[str, Change, bool]:
    ((key, _, by),) = change.rows
    rows = pa.table({"id": [key], "name": [by]})
    tx = lake.begin()
    if change.kind == APPEND:
        tx.write("t", rows)
    else:
        merge = tx.merge("t", rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    try:
        tx.commit()
    except CommitConflictError:
        return tx.txn_id, change, False
    return tx.txn_id, change, True


def change_with_delta_spark(session: SparkSession, path: str, change: Change, name: str) -> Any:
    ((key, _, by),) = change.rows
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", name)
    rows = session.createDataFrame([(key, by)], "id BIGINT, name STRING").coalesce(1)
    if change.kind == APPEND:
        rows.write.format("delta").mode("append").save(path)
    else:
        rows.createOrReplaceTempView("new_rows")
        session.sql(
            f"MERGE INTO delta.`{path}` t USING new_rows s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def test_jar_without_delta_has_only_one_class_that_needs_it(tmp_path: Path) -> None:
    """Spark loads the catalog in sessions without delta-spark."""
    shutil.unpack_archive(deltasql.spark.jar(), tmp_path, "zip")
    needing = [each.stem for each in tmp_path.rglob("*.class") if b"io/delta/" in each.read_bytes()]
    assert needing == ["DeltaSqlLogStore"]
