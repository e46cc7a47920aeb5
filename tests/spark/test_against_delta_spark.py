"""Merges, updates and deletes give the same rows as delta-spark, on the same random data."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

import deltasql
import deltasql.spark
from deltasql.exceptions import MergeAmbiguityError
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.states import arrow_rows
from tests.selection import examples
from tests.spark.changes import CONDITION, MERGE, ROWS, SETTING, add_clauses, arrow, merge_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog

pytestmark = [
    pytest.mark.everything("delta-spark as a second opinion, on random changes"),
    # A test that is stopped leaves the connection to the JVM in the middle of a response, so that
    # all later Spark tests of the process fail.
    pytest.mark.timeout(2700),
]

STEP = st.one_of(
    st.tuples(st.just("delete"), CONDITION),
    st.tuples(st.just("update"), SETTING, CONDITION),
    st.tuples(st.just("merge"), MERGE),
    st.tuples(st.just("merge"), MERGE),
)


@given(
    first=ROWS,
    steps=st.lists(STEP, min_size=3, max_size=4),
    parts=st.sampled_from([[], ["g"]]),
)
@settings(
    max_examples=examples(20),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_changes_give_the_same_rows_as_delta_spark(
    spark: SparkSession, first: list[Any], steps: list[Any], parts: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = spark.createDataFrame(arrow(first))
        stock = f"{folder}/stock"
        data.write.format("delta").partitionBy(*parts).save(stock)
        with deltasql.connect(
            f"deltasql://sqlite/{folder}/meta.db",
            mirror={"mode": "sync"},
            table={"data_root": f"{folder}/lake"},
        ) as catalog:
            with catalog.begin() as tx:
                tx.write("t", data, partition_by=parts)
            place = Place(catalog.table("t").location)
            for step in steps:
                with catalog.begin() as tx:
                    take(spark, tx, f"delta.`{stock}`", step)
                own = deltasql.spark.read(spark, catalog.table("t").uri).toArrow()
                theirs = spark.read.format("delta").load(stock).toArrow()
                assert arrow_rows(own) == arrow_rows(theirs), step
            # delta-spark reads the published table with the same rows.
            head = catalog.table("t").snapshot().version
            assert DeltaSpark(spark).rows(place, head) == arrow_rows(theirs)


def take(spark: SparkSession, tx: deltasql.MultiTableTransaction, stock: str, step: Any) -> None:
    """Apply one change to the deltasql table and to the delta-spark table."""
    match step:
        case ("delete", condition):
            spark.sql(f"DELETE FROM {stock} WHERE {condition}")
            tx.delete("t", condition, engine="spark", flavour="spark")
        case ("update", (column, value), condition):
            spark.sql(f"UPDATE {stock} SET {column} = {value} WHERE {condition}")
            updates = {column: value}
            tx.update("t", updates, predicate=condition, engine="spark", flavour="spark")
        case ("merge", (source, matched, inserts, alone)):
            frame = spark.createDataFrame(arrow(source))
            spark.sql(merge_sql(stock, matched, inserts, alone), source=frame)
            merger = tx.merge("t", frame, "t.id = s.id", "s", "t", flavour="spark")
            add_clauses(merger, matched, inserts, alone).execute()


@pytest.mark.parametrize(
    "clauses",
    [
        [("update_all", None)],
        [("delete", None)],
        [("delete", "s.v = 1 OR t.g = 'a'"), ("update_all", None)],
        [("update_all", "s.v > t.v")],
    ],
    ids=repr,
)
def test_merge_is_ambiguous_exactly_when_delta_spark_raises(
    spark: SparkSession, catalog_of_sqlite: Catalog, tmp_path: Any, clauses: list[Any]
) -> None:
    rows = [(1, "a", 1, None, None, None, None), (2, "b", 5, None, None, None, None)]
    twice = [(1, "x", 2, None, None, None, None), (1, "y", 3, None, None, None, None)]
    data, source = (spark.createDataFrame(arrow(each)) for each in (rows, twice))
    data.write.format("delta").save(str(tmp_path / "stock"))
    statement = merge_sql(f"delta.`{tmp_path}/stock`", clauses, [], [])
    try:
        spark.sql(statement, source=source)
        refused = False
    except PySparkException:
        refused = True
    with catalog_of_sqlite.begin() as tx:
        tx.write("t", data)
    tx = catalog_of_sqlite.begin()
    merger = add_clauses(tx.merge("t", source, "t.id = s.id", "s", "t"), clauses, [], [])
    if refused:
        with pytest.raises(MergeAmbiguityError, match="multiple source rows"):
            merger.execute()
    else:
        merger.execute()
        tx.commit()
        own = deltasql.spark.read(spark, catalog_of_sqlite.table("t").uri).toArrow()
        theirs = spark.read.format("delta").load(str(tmp_path / "stock")).toArrow()
        assert arrow_rows(own) == arrow_rows(theirs)


@pytest.fixture
def catalog_of_sqlite(sqlite_uri: Any, tmp_path: Any) -> Any:
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "off"}, table={"data_root": str(tmp_path / "lake")}
    ) as opened:
        yield opened
