"""No operation changes the settings, views or cached rows of the user's Spark session."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import deltasql.spark
from deltasql.spark import DeltaTable
from deltasql.spark.session import set_catalog
from tests.spark.support import ODD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog

QUERY = """
SELECT current_timezone(), CAST(TIMESTAMP '2024-05-01T23:00:00Z' AS STRING), CAST('x' AS INT),
  '\\d', typeof(CAST('2024-05-01' AS TIMESTAMP))
"""
"""The result depends on the time zone, ANSI mode, escapes and the timestamp type."""


@pytest.fixture
def other_session(spark: SparkSession, lake: Catalog) -> SparkSession:
    """A session whose settings all differ from those that deltasql uses."""
    session = spark.newSession()
    for name, value in ODD.items():
        session.conf.set(name, value)
    set_catalog(session, lake)
    return session


class SessionWatch:
    """Queries a session repeatedly in a thread and counts differences from the start."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._look()  # delta-spark sets two settings when a session runs its first query
        self._expected = self._look()
        self._done, self._looked = threading.Event(), threading.Event()
        self.looks = 0
        self.deviations: Counter[str] = Counter()

    def _look(self) -> dict[str, object]:
        from pyspark.errors import PySparkException

        found: dict[str, object] = dict(self._spark.conf.getAll)
        found["views"] = sorted(each.name for each in self._spark.catalog.listTables())
        try:
            found["answer"] = tuple(self._spark.sql(QUERY).collect()[0])
        except PySparkException as error:
            found["answer"] = error.getCondition()
        return found

    def _loop(self) -> None:
        while not self._done.is_set():
            found = self._look()
            names = found.keys() | self._expected.keys()
            self.deviations.update(n for n in names if found.get(n) != self._expected.get(n))
            self.looks += 1
            self._looked.set()
            self._done.wait(0.01)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join(60)
        assert not thread.is_alive()

    def beside(self, verb: Callable[[], object]) -> None:
        """Run an operation while the session is watched, until at least one query has finished."""
        self._looked.clear()
        verb()
        assert self._looked.wait(60)


# They open a table, return a builder that another entry runs, or only raise an error.
NO_OPERATION = {
    "alias",
    "createIfNotExists",
    "createOrReplace",
    "dropFeatureSupport",
    "forName",
    "forPath",
    "isDeltaTable",
    "replace",
}


# Each of these runs Spark jobs in a way of its own.
CHOSEN = ("append", "merge", "delete", "read", "stream", "optimize")


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(CHOSEN, id="chosen"),
        pytest.param(None, id="all", marks=pytest.mark.everything("operations like the chosen")),
    ],
)
def test_concurrent_queries_see_the_session_unchanged_by_every_operation(
    other_session: SparkSession, lake: Catalog, tmp_path: Path, chosen: tuple[str, ...] | None
) -> None:
    def rows(first: int, end: int) -> Any:
        return other_session.range(first, end, 1, 2).selectExpr(
            "id", "id % 2 AS p", "TIMESTAMP '2024-05-01 08:00:00' AS at"
        )

    uri = lake.uri.with_table("t").to_string()
    write = deltasql.spark.write
    stream = deltasql.spark.stream_writer("t", app_id="s", catalog=lake)
    rows(0, 4).write.parquet(str(tmp_path / "plain"))
    deltasql.spark.register(other_session, lake, views=False)
    watch = SessionWatch(other_session)
    with watch.running():
        watch.beside(lambda: write(rows(0, 2_000), uri, partition_by="p"))
        table = DeltaTable.forName(other_session, "t")
        merger = table.alias("t").merge(rows(1_990, 2_010).alias("s"), "t.id = s.id")
        source = other_session.read.format("deltasql")
        verbs: dict[str, Callable[[], object]] = {
            "append": lambda: write(rows(2_000, 2_005), uri),
            "replaceWhere": lambda: write(
                rows(2_000, 2_005), uri, "overwrite", replace_where="id >= 2000"
            ),
            "merge": merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute,
            "update": lambda: table.update("id = 7", {"id": "-id"}),
            "delete": lambda: table.delete("id = 8"),
            "read": lambda: deltasql.spark.read(
                other_session, uri, predicate="at > '2024-04-30'"
            ).count(),
            "toDF": lambda: table.toDF().count(),
            "stream": lambda: stream(rows(3_000, 3_005), 0),
            "format, read": lambda: source.load("t").count(),
            "format, write": lambda: (
                rows(0, 2).write.format("deltasql").mode("append").save("by_format")
            ),
            "history": lambda: table.history().collect(),
            "detail": lambda: table.detail().collect(),
            "optimize": table.optimize().executeCompaction,
            "z-order": lambda: table.optimize().executeZOrderBy("id"),
            "vacuum": table.vacuum,
            "generate": lambda: table.generate("symlink_format_manifest"),
            "clone": lambda: table.clone("copy_1"),
            "cloneAtVersion": lambda: table.cloneAtVersion(0, "copy_2"),
            "cloneAtTimestamp": lambda: table.cloneAtTimestamp("2999-01-01", "copy_3"),
            "convertToDelta": lambda: DeltaTable.convertToDelta(
                other_session, f"parquet.`{tmp_path / 'plain'}`"
            ),
            "create": lambda: (
                DeltaTable.create(other_session)
                .tableName("made")
                .addColumn("id", "BIGINT")
                .execute()
            ),
            "upgradeTableProtocol": lambda: table.upgradeTableProtocol(1, 4),
            "addFeatureSupport": lambda: table.addFeatureSupport("changeDataFeed"),
            "restoreToTimestamp": lambda: table.restoreToTimestamp(str(first_commit)),
            "restoreToVersion": lambda: table.restoreToVersion(1),
        }
        first_commit = lake.table("t").snapshot(0).committed_at
        public = {name for name in vars(DeltaTable) if not name.startswith("_")}
        assert public - NO_OPERATION <= verbs.keys()
        for name in chosen or verbs:
            watch.beside(verbs[name])
    assert watch.looks > len(chosen or verbs)
    assert watch.deviations == Counter()
    if chosen is None:
        assert table.toDF().count() == 2_005


@pytest.mark.everything("Spark, beyond a smoke test of each face")
def test_merge_keeps_its_source_cached(other_session: SparkSession, lake: Catalog) -> None:
    deltasql.spark.write(other_session.range(4), lake.uri.with_table("t").to_string())
    source = other_session.range(2, 6).selectExpr("id").persist()
    try:
        assert source.count() == 4
        merger = (
            DeltaTable.forName(other_session, "t")
            .alias("t")
            .merge(source.alias("s"), "t.id = s.id")
        )
        merger.whenNotMatchedInsertAll().execute()
        assert source.storageLevel.useMemory
    finally:
        source.unpersist()
