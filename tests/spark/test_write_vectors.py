"""Deletion vectors on Spark: our engine writes them, delta-spark reads and extends them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.store.records import load_dv
from tests.operations.dml import handle, sorted_rows
from tests.oracles.readers import DeltaSpark, DuckDb, Place
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog

ON = {"delta.enableDeletionVectors": "true"}
ROWS = 2000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    uri, data_root = f"deltasql://sqlite/{tmp_path}/meta.db", {"data_root": f"{tmp_path}/lake"}
    with deltasql.connect(uri, create=True, mirror={"mode": "sync"}, table=data_root) as opened:
        yield opened


def fill(catalog: Catalog, **properties: str) -> None:
    for first in (0, ROWS):
        rows = pa.table({"id": range(first, first + ROWS), "v": pa.array([0] * ROWS, pa.int64())})
        with catalog.begin() as tx:
            tx.write("t", rows, **({} if first else {"properties": {**ON, **properties}}))


def live(catalog: Catalog) -> dict[str, int]:
    """Return the number of deleted rows by path."""
    found = handle(catalog).snapshot.scan().arrow
    vectors = map(load_dv, found["deletion_vector"].to_pylist())
    counts = [0 if each is None else each.cardinality for each in vectors]
    return dict(zip(found["path"].to_pylist(), counts, strict=True))


def table_rows(catalog: Catalog) -> Any:
    return arrow_rows(pa.Table.from_pylist(sorted_rows(catalog)))


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_spark_engine_writes_vectors_that_delta_spark_reads(
    spark: SparkSession, catalog: Catalog
) -> None:
    fill(catalog)
    before = live(catalog)
    place, reader = Place(catalog.resolve("t").location), DeltaSpark(spark)
    with catalog.begin() as tx:
        metrics = tx.delete("t", "id % 10 = 3", engine="spark")
    assert metrics["num_deleted_rows"] == 400
    assert live(catalog) == dict.fromkeys(before, 200)
    with catalog.begin() as tx:
        tx.update("t", {"v": "id"}, predicate="id % 100 = 7", engine="spark")
    assert before.keys() < live(catalog).keys()
    source = spark.createDataFrame([(5, 1), (9, -1), (99999, 2)], "id bigint, v bigint")
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "t.id = s.id", "s", "t", engine="spark")
        merger.when_matched_delete("s.v < 0").when_matched_update_all()
        merger.when_not_matched_insert_all().execute()
    assert before.keys() < live(catalog).keys()
    expected = {n: n if n % 100 == 7 else 0 for n in range(2 * ROWS) if n % 10 != 3 and n != 9}
    expected |= {5: 1, 99999: 2}
    ours = table_rows(catalog)
    assert ours == arrow_rows(pa.table({"id": list(expected), "v": list(expected.values())}))
    assert reader.rows(place, handle(catalog).snapshot.version) == ours


@pytest.mark.everything("delta-spark writes in between")
@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("feed", ["false", "true"])
def test_deletes_alternate_with_delta_spark(
    spark: SparkSession, catalog: Catalog, engine: str, feed: str
) -> None:
    fill(catalog, **{"delta.enableChangeDataFeed": feed})
    place, duckdb, reader = catalog.resolve("t").location, DuckDb(), DeltaSpark(spark)
    rows = dict.fromkeys(range(2 * ROWS), 0)
    random_numbers = random.Random(29)
    for step in range(6):
        modulus, rest = random_numbers.randint(5, 30), random_numbers.randint(0, 4)
        chosen = {n for n in rows if n % modulus == rest}
        condition, deletes = f"id % {modulus} = {rest}", random_numbers.random() < 0.6
        if step % 2:
            change = "DELETE FROM" if deletes else "UPDATE"
            setting = "" if deletes else " SET v = v + 1"
            spark.sql(f"{change} delta.`{place}`{setting} WHERE {condition}")
            catalog.mirror.adopt("t")
        else:
            with catalog.begin() as tx:
                if deletes:
                    tx.delete("t", condition, engine=engine)
                else:
                    tx.update("t", {"v": "v + 1"}, predicate=condition, engine=engine)
        if deletes:
            rows = {n: v for n, v in rows.items() if n not in chosen}
        else:
            rows |= {n: rows[n] + 1 for n in chosen}
        expected = arrow_rows(pa.table({"id": list(rows), "v": list(rows.values())}))
        version = handle(catalog).snapshot.version
        assert table_rows(catalog) == expected, (step, condition)
        assert reader.rows(Place(place), version) == expected, (step, condition)
        assert duckdb.rows(Place(place), version) == expected, (step, condition)
    assert any(live(catalog).values())
    assert all(report.ok for report in catalog.mirror.verify("t"))
    if feed == "true":
        changes = spark.read.format("delta").option("readChangeFeed", "true")
        found = changes.option("startingVersion", 0).load(place).groupBy("_change_type").count()
        counts = {row["_change_type"]: row["count"] for row in found.collect()}
        assert counts["insert"] == 2 * ROWS
        assert counts.get("delete", 0) == 2 * ROWS - len(rows)
        assert counts.get("update_preimage", 0) == counts.get("update_postimage", 0)
    catalog.purge("t", engine=engine)
    assert not any(live(catalog).values())
    assert reader.rows(Place(place), handle(catalog).snapshot.version) == expected
