"""Tables in S3 on Spark, through Hadoop's S3 client and a real server."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import deltalake
import pytest

import deltasql
import deltasql.spark
from deltasql.config import StorageSettings
from deltasql.engine.spark.s3 import bucket_options
from deltasql.spark import DeltaTable, mirror_spark
from deltasql.spark.session import set_catalog
from deltasql.storage import open_storage
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

OTHERS = ("endpoint", "endpoint.region", "path.style.access")
"""Options of a bucket that are not credentials."""


@pytest.fixture
def lake(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> Iterator[Catalog]:
    # The options are only in the catalog: the session alone must not reach the bucket.
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as opened:
        yield opened


def ids(rows: Iterable[object]) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in rows), key=str)  # type: ignore[call-overload]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_table_in_s3_is_written_changed_read_and_vacuumed(
    spark: SparkSession, lake: Catalog, s3_options: dict[str, str]
) -> None:
    before = dict(spark.conf.getAll)
    set_catalog(spark, lake)
    rows = [(1, "a b", "x"), (2, "a/b=%41", "x"), (3, None, "x")]
    with lake.begin() as tx:
        frame = spark.createDataFrame(rows, "id long, p string, v string").coalesce(1)
        tx.write("t", frame, partition_by=["p"])
    table = DeltaTable.forName(spark, "t")
    assert ids(table.toDF().collect()) == ids(rows)
    news = spark.createDataFrame([(1, "a b", "y"), (4, "c", "y")], "id long, p string, v string")
    merger = table.alias("t").merge(news.coalesce(1).alias("s"), "t.id = s.id")
    merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table.delete("id = 2")
    left = [(1, "a b", "y"), (3, None, "x"), (4, "c", "y")]
    assert ids(table.toDF().where("v = 'y'").collect()) == ids(left[:1] + left[2:])
    stock = deltalake.DeltaTable(lake.table("t").location, storage_options=s3_options)
    assert ids(row.values() for row in stock.to_pyarrow_table().to_pylist()) == ids(left)
    assert dict(spark.conf.getAll) == before

    [theirs] = mirror_spark(spark, lake, database="bucket", using_delta=True).values()
    try:
        assert ids(spark.table(theirs).collect()) == ids(left)
    finally:
        spark.sql("DROP DATABASE bucket CASCADE")

    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    storage = open_storage(lake.table("t").location, lake.config.storage)
    found = {info.name for info in storage.list("") if not info.name.startswith("_delta_log/")}
    live = deltalake.DeltaTable(lake.table("t").location, storage_options=s3_options)
    assert len(found) == len(live.file_uris()) == 3
    assert ids(table.toDF().collect()) == ids(left)
    assert lake.store.intents_before(2**60) == []


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_location_may_start_with_s3a(
    spark: SparkSession,
    sqlite_uri: DeltaSqlUri,
    s3_location: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELTASQL_STORAGE__OPTIONS", json.dumps(s3_options))
    place = s3_location.replace("s3://", "s3a://")
    uri = f"{sqlite_uri.with_table('t')}&location={place}/t"
    assert deltasql.spark.write(spark.range(3).coalesce(1), uri) == 0
    assert deltasql.spark.write(spark.range(3, 5).coalesce(1), uri) == 1
    found = deltasql.spark.read(spark, uri, predicate="id > 1")
    assert ids(found.collect()) == [(2,), (3,), (4,)]
    assert deltasql.spark.read(spark, uri, version=0).count() == 3
    set_catalog(spark, str(sqlite_uri))
    for spelled in (f"{place}/t", f"{s3_location}/t"):
        assert DeltaTable.forPath(spark, spelled).toDF().count() == 5


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_bucket_credentials_of_the_session_are_kept(
    spark: SparkSession, lake: Catalog, s3_location: str
) -> None:
    bucket = f"fs.s3a.bucket.{s3_location.split('/')[2]}"
    own = {
        f"spark.hadoop.{bucket}.access.key": "mine",  # as set when a session is started
        f"{bucket}.access.key": "mine",
        f"{bucket}.secret.key": "also mine",
    }
    for name, value in own.items():
        spark.conf.set(name, value)
    try:
        options = bucket_options(spark, s3_location, lake.config.storage)
        assert options.keys() == {f"{bucket}.{name}" for name in OTHERS}
        assert {name: spark.conf.get(name) for name in own} == own
    finally:
        for name in own:
            spark.conf.unset(name)
    options = bucket_options(spark, s3_location, lake.config.storage)
    assert f"{bucket}.access.key" in options


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_different_credentials_for_a_bucket_are_logged_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    def key(name: str) -> StorageSettings:
        return StorageSettings(
            options={"aws_access_key_id": name, "aws_secret_access_key": f"hidden {name}"}
        )

    with caplog.at_level(logging.WARNING, "deltasql.engine.spark.s3"):
        bucket_options(spark, "s3://two-keys/a", key("one"))
        bucket_options(spark, "s3://two-keys/b", key("one"))
        bucket_options(spark, "s3://another/b", key("two"))
        assert "credentials" not in caplog.text
        for name in ("two", "three"):
            bucket_options(spark, "s3://two-keys/b", key(name))
    [warning] = [each for each in caplog.records if each.name == "deltasql.engine.spark.s3"]
    assert "two-keys" in warning.getMessage()
    assert "hidden" not in f"{warning.getMessage()} {vars(warning)}"
