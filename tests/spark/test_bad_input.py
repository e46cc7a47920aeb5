"""Invalid input on Spark raises a typed error that names the table, and leaves no files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
import deltasql.spark
from deltasql.exceptions import (
    MergeAmbiguityError,
    StoreUnavailableError,
    TxnLogEngineError,
    TxnLogError,
    TxnLogSchemaError,
)
from tests.commit.proxy import Proxy
from tests.each import check_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.decimal128(5, 2))]
)


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with the table `sales` of three rows in two files."""
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "off"}, table={"data_root": str(tmp_path / "lake")}
    ) as opened:
        fill(opened)
        yield opened


def fill(catalog: Catalog) -> None:
    catalog.create_table("sales", SCHEMA)
    for ids in ([1, 2], [3]):
        with catalog.begin() as tx:
            rows = [{"id": each, "v": "old", "n": None} for each in ids]
            tx.write("sales", pa.Table.from_pylist(rows, SCHEMA), engine="duckdb")


def sales(spark: SparkSession, first: int, last: int) -> DataFrame:
    """Return rows with the schema of the table."""
    frame = spark.range(first, last, 1, 3)
    return frame.selectExpr("id", "'new' AS v", "CAST(NULL AS DECIMAL(5,2)) AS n")


def state(catalog: Catalog) -> tuple[object, ...]:
    """Return the state that a failure must not change: version, rows, files and intents."""
    root = Path(catalog.table("sales").location)
    files = sorted(str(path) for path in root.rglob("*.parquet"))
    with catalog.begin() as tx:
        rows = tx.read("sales", engine="duckdb").sort_by("id").to_pylist()
    version = catalog.table("sales").snapshot().version
    return version, rows, files, catalog.store.intents_before(2**60)


def assert_fails(
    catalog: Catalog, kind: type[TxnLogError], act: Callable[[deltasql.MultiTableTransaction], Any]
) -> TxnLogError:
    """Run something that must fail; return its error, which names the table and a remedy."""
    before = state(catalog)
    with pytest.raises(kind) as caught, catalog.begin() as tx:
        act(tx)
    assert state(catalog) == before
    text = str(caught.value)
    assert "sales" in text, text
    assert "\nHelp: " in text
    return caught.value


MISFITS = {
    "a column less": "SELECT 1L AS id, 'x' AS v",
    "a column more": "SELECT 1L AS id, 'x' AS v, 1.00BD AS n, 1 AS extra",
    "another column": "SELECT 1L AS id, 'x' AS v, 1 AS extra",
    "a struct for text": "SELECT 1L AS id, struct(1 AS a) AS v, 1.00BD AS n",
    "an interval": "SELECT 1L AS id, 'x' AS v, INTERVAL '1' DAY AS n",
    "an interval inside": "SELECT 1L AS id, array(INTERVAL '1' YEAR) AS v, 1.00BD AS n",
}


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_rows_with_another_schema_are_rejected(spark: SparkSession, lake: Catalog) -> None:
    def check(name: str) -> None:
        frame = spark.sql(MISFITS[name])
        assert_fails(lake, TxnLogSchemaError, lambda tx: tx.write("sales", frame))

    check_each(MISFITS, check)


ODDITIES = {
    "an interval": "SELECT INTERVAL '1' DAY AS i",
    "an interval inside": "SELECT map('a', struct(INTERVAL '1' YEAR AS y)) AS m",
    "a name twice": "SELECT 1 AS a, 2 AS A",
}


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_no_table_is_created_for_unsupported_columns(spark: SparkSession, lake: Catalog) -> None:
    def check(name: str) -> None:
        with pytest.raises(TxnLogError, match="Help: "):
            deltasql.spark.write(spark.sql(ODDITIES[name]), lake.uri.with_table("new").to_string())
        assert not lake.exists("new")
        assert lake.store.intents_before(2**60) == []

    check_each(ODDITIES, check)


BROKEN = {
    "a null where none may be": ("SELECT CAST(NULL AS BIGINT) AS id, 'x' AS v, 1.00BD AS n", "id"),
    "text that is not a number": ("SELECT 'one' AS id, 'x' AS v, 1.00BD AS n", "id"),
    "a number that is too large": ("SELECT 4L AS id, 'x' AS v, 123456.78BD AS n", "n"),
    "text in one of many rows": (
        "SELECT IF(id = 4000, 'one', '7') AS id, 'x' AS v, 1.00BD AS n FROM range(5000)",
        "id",
    ),
}
"""Invalid rows, and the column that the error names."""


def test_rows_with_invalid_values_are_rejected(spark: SparkSession, lake: Catalog) -> None:
    def check(name: str) -> None:
        query, column = BROKEN[name]
        frame = spark.sql(query)
        error = assert_fails(lake, TxnLogError, lambda tx: tx.write("sales", frame))
        assert re.search(rf"\b{column}\b", str(error)), error

    check_each(BROKEN, check)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_merge_source_with_duplicate_keys_is_ambiguous(spark: SparkSession, lake: Catalog) -> None:
    source = sales(spark, 1, 2).unionAll(sales(spark, 1, 2))

    def merge(tx: deltasql.MultiTableTransaction) -> None:
        merger = tx.merge("sales", source, "t.id = s.id", "s", "t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    assert_fails(lake, MergeAmbiguityError, merge)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_unknown_column_is_named_in_the_error(spark: SparkSession, lake: Catalog) -> None:
    source = spark.range(1)
    for act in (
        lambda tx: tx.delete("sales", "idd = 1", engine="spark"),
        lambda tx: (
            tx.merge("sales", source, "t.idd = s.id", "s", "t").when_matched_delete().execute()
        ),
    ):
        assert "idd" in str(assert_fails(lake, TxnLogError, act))


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_frame_of_another_session_is_rejected(spark: SparkSession, lake: Catalog) -> None:
    other = sales(spark.newSession(), 5, 6)

    def both(tx: deltasql.MultiTableTransaction) -> None:
        tx.write("sales", sales(spark, 4, 5))
        tx.write("sales", other)

    assert_fails(lake, TxnLogEngineError, both)

    def merge(tx: deltasql.MultiTableTransaction) -> None:
        tx.write("sales", sales(spark, 4, 5))
        tx.merge("sales", other, "t.id = s.id", "s", "t").when_matched_delete().execute()

    assert_fails(lake, TxnLogEngineError, merge)


def dies(frame: DataFrame) -> DataFrame:
    """Return rows whose last partition kills its Python process after others were written."""

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 39 in batch.column("id").to_pylist():
                os._exit(17)
            yield batch

    return frame.mapInArrow(die, frame.schema)


def raises(frame: DataFrame) -> DataFrame:
    """Return rows of which one raises an error."""
    failing = "CASE WHEN id = 39 THEN raise_error('row 39') ELSE id END AS id"
    return frame.selectExpr(failing, "v", "n")


@pytest.mark.parametrize("broken", [dies, raises], ids=lambda each: each.__name__)
def test_failed_task_leaves_no_files(
    spark: SparkSession, lake: Catalog, broken: Callable[[DataFrame], DataFrame]
) -> None:
    frame = broken(sales(spark, 10, 40))
    assert_fails(lake, TxnLogEngineError, lambda tx: tx.write("sales", frame))

    def merge(tx: deltasql.MultiTableTransaction) -> None:
        merger = tx.merge("sales", frame, "t.id = s.id", "s", "t")
        merger.when_not_matched_insert_all().execute()

    assert_fails(lake, TxnLogEngineError, merge)
    before = state(lake)
    # The session and the table still work.
    with lake.begin() as tx:
        tx.write("sales", sales(spark, 4, 5))
    assert lake.table("sales").snapshot().version == before[0] + 1  # type: ignore[operator]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_files_are_deleted_when_the_database_fails_before_commit(
    spark: SparkSession, postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "mirror": {"mode": "off"},
        "table": {"data_root": str(tmp_path / "lake")},
        "retry": {"max_attempts": 2, "initial_backoff_ms": 1, "max_backoff_ms": 5},
    }
    with deltasql.connect(postgres_uri, **options) as direct:
        fill(direct)
        version = direct.table("sales").snapshot().version
        with Proxy() as proxy:
            far = deltasql.connect(proxy.uri(postgres_uri), pool={"timeout_s": 1}, **options)
            tx = far.begin()
            tx.write("sales", sales(spark, 10, 40))
            proxy.stop_accepting()
            with pytest.raises(StoreUnavailableError, match="Help: "):
                tx.commit()
            far.close()
        assert direct.table("sales").snapshot().version == version
        # No COMMIT was sent, so the files that Spark wrote are deleted.
        root = Path(direct.table("sales").location)
        live = set(direct.table("sales").snapshot().files()["path"].to_pylist())
        assert {str(path.relative_to(root)) for path in root.rglob("*.parquet")} == live


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_write_leaves_no_files_when_the_database_failed_before_the_write(
    spark: SparkSession, postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "mirror": {"mode": "off"},
        "table": {"data_root": str(tmp_path / "lake")},
        "retry": {"max_attempts": 2, "initial_backoff_ms": 1, "max_backoff_ms": 5},
    }
    with deltasql.connect(postgres_uri, **options) as direct:
        fill(direct)
        before = state(direct)
        with Proxy() as proxy:
            far = deltasql.connect(proxy.uri(postgres_uri), pool={"timeout_s": 1}, **options)
            tx = far.begin()
            tx.snapshot("sales")
            proxy.stop_accepting()
            with pytest.raises(StoreUnavailableError, match="Help: "), tx:
                tx.write("sales", sales(spark, 10, 40))
            far.close()
        assert state(direct) == before
