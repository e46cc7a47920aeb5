"""`deltasql.spark.DeltaTable` accepts the calls of delta-spark and returns the same results."""

from __future__ import annotations

import pickle
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    UnsupportedOperationException,
)
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from deltasql.exceptions import TxnLogError
from deltasql.spark import DeltaTable
from deltasql.spark.session import known_name, set_catalog
from tests.counting import counting
from tests.each import check_each
from tests.spark.support import ROWS, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog


# Without in-commit timestamps, a new table has reader version 1 and writer version 2.
NUMBERED = {"delta.enableInCommitTimestamps": "false"}


@pytest.fixture
def lake(spark: SparkSession, lake: Catalog) -> Catalog:
    """The catalog, registered in the session."""
    set_catalog(spark, lake)
    return lake


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.toDF().collect())


# Opening


def test_table_is_found_by_name_and_path(
    spark: SparkSession, lake: Catalog, table: DeltaTable
) -> None:
    known = lake.table("t")
    for path in (known.location, f"file:{known.location}/"):
        assert rows(DeltaTable.forPath(spark, path)) == ROWS
    assert rows(DeltaTable.forName(spark, f"delta.`{known.location}`")) == ROWS
    assert rows(DeltaTable.forName(spark, "spark_catalog.default.`t`")) == ROWS
    assert DeltaTable.isDeltaTable(spark, known.location)
    assert DeltaTable.isDeltaTable(spark, "t")
    assert not DeltaTable.isDeltaTable(spark, f"{known.location}/none")
    assert not DeltaTable.isDeltaTable(spark, "none")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_missing_table_raises_the_error_of_delta_spark(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="is not a Delta table") as caught:
        DeltaTable.forPath(spark, str(tmp_path / "none"))
    assert isinstance(caught.value, TxnLogError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert caught.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    for name in ("none", f"delta.`{tmp_path / 'none'}`"):
        with pytest.raises(AnalysisException, match=r"none.* is not a Delta table"):
            DeltaTable.forName(spark, name)
    with pytest.raises(TypeError):
        DeltaTable.forPath(spark, 1)  # type: ignore[arg-type]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_alias_qualifies_columns(table: DeltaTable) -> None:
    found = table.alias("x").toDF().select("x.key", "x.value")
    assert sorted(tuple(row) for row in found.collect()) == ROWS
    assert len(table.toDF().alias("y").where("y.value > 2").collect()) == 2


# Delete and update


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_columns_may_be_qualified_by_alias_or_table_name(table: DeltaTable) -> None:
    table.alias("x").delete("x.key = 'a' OR X.value = 9")
    table.alias("x").update(F.col("x.key") == "b", {"x.value": F.col("x.value") + 1})
    table.update("t.key = 'c'", {"value": "t.value * 2"})
    assert rows(table) == [("b", 3), ("c", 6), ("d", 4)]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_delete_accepts_sql_strings_and_columns(table: DeltaTable) -> None:
    table.delete("key = 'a'")
    assert rows(table) == ROWS[1:]
    table.delete(F.col("key") == F.lit("b"))
    assert rows(table) == ROWS[2:]
    table.delete(table.toDF().value > 3)
    assert rows(table) == ROWS[2:3]
    table.delete()
    assert rows(table) == []


def test_update_accepts_sql_strings_and_columns(table: DeltaTable) -> None:
    table.update("key = 'a' or key = 'b'", {"value": "1"})
    table.update(condition=F.expr("key = 'c'"), set={"value": F.lit(7) + F.col("value")})
    table.update(set={"key": F.upper(F.concat(F.col("key"), F.lit("'x")))})
    assert rows(table) == [("A'X", 1), ("B'X", 1), ("C'X", 10), ("D'X", 4)]
    [last] = table.history(1).select("operation", "operationMetrics.numUpdatedRows").collect()
    assert tuple(last) == ("UPDATE", "4")


BAD_CALLS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda t: t.delete(1), TypeError, "'condition' must be a Spark SQL Column"),
    (lambda t: t.update({"value": "4"}), ValueError, "'set' cannot be None"),
    (lambda t: t.update(set=1), TypeError, "'set' must be a dict"),
    (lambda t: t.update(set={1: "1"}), TypeError, "Keys of dict in 'set'"),
    (lambda t: t.update(set={"value": 1}), TypeError, "Values of dict in 'set'"),
    (lambda t: t.update(1, {"value": "1"}), TypeError, "'condition' must be"),
    (lambda t: t.delete("none = 1"), AnalysisException, "none"),
    (lambda t: t.update(set={"none": "1"}), AnalysisException, "none"),
    (lambda t: t.delete("key = = 1"), ParseException, "="),
    (
        lambda t: t.update(set={"value": "nofunction(value)"}),
        AnalysisException,
        "(?i)nofunction",
    ),
    (lambda t: t.restoreToVersion("0"), ValueError, "version needs to be an int"),
    (lambda t: t.restoreToVersion(9), AnalysisException, "Available versions"),
    (lambda t: t.restoreToTimestamp(1), ValueError, "timestamp needs to be a string"),
    (lambda t: t.restoreToTimestamp("soon"), AnalysisException, "soon"),
    (lambda t: t.restoreToTimestamp("1999-01-01"), AnalysisException, "before the earliest"),
    (lambda t: t.generate("xml"), IllegalArgumentException, "not supported"),
    (lambda t: t.vacuum(0), IllegalArgumentException, "RETENTION_PERIOD_TOO_SHORT"),
    (lambda t: t.vacuum("soon"), ValueError, "soon"),
    (lambda t: t.upgradeTableProtocol("1", 3), ValueError, "readerVersion"),
    (lambda t: t.upgradeTableProtocol(1, [3]), ValueError, "writerVersion"),
    (lambda t: t.upgradeTableProtocol(9, 9), IllegalArgumentException, "minReaderVersion"),
    (lambda t: t.addFeatureSupport(1), ValueError, "featureName needs to be a string"),
    (lambda t: t.addFeatureSupport("abc"), TxnLogError, "UNSUPPORTED_FEATURES"),
    (lambda t: t.optimize().where("value = 1").executeCompaction(), AnalysisException, "value"),
    (lambda t: t.optimize().executeZOrderBy([1]), TypeError, "Z-order column must be str"),
    (
        lambda t: t.optimize().executeZOrderBy("none"),
        IllegalArgumentException,
        "Z-Ordering column none does not exist in data schema",
    ),
    (
        lambda t: t.dropFeatureSupport("v2Checkpoint"),
        TxnLogError,
        "DROP_FEATURE_NOT_PRESENT.*v2Checkpoint",
    ),
    (lambda t: t.dropFeatureSupport("abc"), TxnLogError, "DROP_UNSUPPORTED_CLIENT_FEATURE"),
]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_invalid_calls_raise_the_error_types_of_delta_spark(table: DeltaTable) -> None:
    version = table.history(1).first()["version"]  # type: ignore[index]

    def check(case: tuple[Callable[[Any], Any], type[Exception], str]) -> None:
        call, kind, message = case
        with pytest.raises(kind, match=message):
            call(table)
        assert table.history(1).first()["version"] == version  # type: ignore[index]

    check_each(BAD_CALLS, check, name=itemgetter(2))


# Maintenance


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_history_and_detail_have_the_columns_of_delta_spark(
    spark: SparkSession, table: DeltaTable, tmp_path: Path
) -> None:
    place = str(tmp_path / "delta")
    spark.createDataFrame(ROWS, ["key", "value"]).write.format("delta").save(place)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`")
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{place}`")
    assert [(f.name, f.dataType) for f in table.history().schema] == [
        (f.name, f.dataType) for f in history.schema
    ]
    assert [(f.name, f.dataType) for f in table.detail().schema] == [
        (f.name, f.dataType) for f in detail.schema
    ]
    [ours], [theirs] = table.detail().collect(), detail.collect()
    for name in ("format", "partitionColumns", "minReaderVersion", "clusteringColumns"):
        assert ours[name] == theirs[name], name
    [commit] = table.history().select("operation", "operationParameters.mode").collect()
    assert tuple(commit) == ("WRITE", "Append")
    assert [row["version"] for row in table.history(5).collect()] == [0]
    assert table.history(0).collect() == []


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_optimize_returns_the_metrics_of_delta_spark(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    place = str(tmp_path / "delta")
    frame = spark.createDataFrame(ROWS, ["key", "value"])
    for number in range(2):
        frame.coalesce(1).write.format("delta").mode("append").save(place)
        with lake.begin() as tx:
            tx.write("many", frame.coalesce(1), partition_by=None if number else ["key"])
    theirs = spark.sql(f"OPTIMIZE delta.`{place}`")
    many = DeltaTable.forName(spark, "many")
    ours = many.optimize().where("key = 'a'").executeCompaction()
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    [row] = ours.collect()
    assert (row.metrics.numFilesRemoved, row.metrics.numFilesAdded) == (2, 1)
    assert row.metrics.partitionsOptimized == 1
    assert many.history(1).first().operationParameters["predicate"] == """["('key = a)"]"""
    for call, kind, message in (
        (
            many.optimize().where("key = 'a' AND value = 1").executeCompaction,
            AnalysisException,
            r"non-partition column 'value'\. .* may be referenced: \[key\]",
        ),
        (
            lambda: many.optimize().executeZOrderBy("value", "key"),
            IllegalArgumentException,
            "key is a partition column. Z-Ordering can only be performed on data columns",
        ),
    ):
        with pytest.raises(kind, match=message):
            call()
    [row] = many.optimize().executeZOrderBy("value").collect()
    assert row.metrics.zOrderStats.inputOtherFiles.num == 7
    [last] = many.history(1).collect()
    assert (last["operation"], last["operationParameters"]["zOrderBy"]) == ("OPTIMIZE", '["value"]')
    assert sorted(tuple(row) for row in many.toDF().collect()) == sorted(ROWS * 2)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_table_is_restored_to_a_version_and_to_a_timestamp(table: DeltaTable) -> None:
    table.delete("key = 'a'")
    table.delete("key = 'b'")
    [row] = table.restoreToVersion(0).collect()
    assert rows(table) == ROWS
    assert (row["num_of_files_after_restore"], row["num_restored_files"]) == (1, 1)
    timestamp = table.history().where("version = 1").first()["timestamp"]  # type: ignore[index]
    table.restoreToTimestamp(timestamp.strftime("%Y-%m-%d %H:%M:%S.%f"))
    assert rows(table) == ROWS[1:]
    assert table.history(1).first()["operation"] == "RESTORE"  # type: ignore[index]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_vacuum_deletes_files_that_no_version_needs(
    spark: SparkSession, lake: Catalog, table: DeltaTable
) -> None:
    table.delete("key = 'a'")
    place = Path(lake.table("t").location)
    assert len(list(place.rglob("part-*.parquet"))) == 2
    stray = place / "stray.txt"
    stray.write_text("nobody knows me")
    table.vacuum()
    assert stray.exists()
    switch = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(switch, "false")
    try:
        assert table.vacuum(0).collect() == []
    finally:
        spark.conf.unset(switch)
    assert len(list(place.rglob("part-*.parquet"))) == 1
    assert not stray.exists()
    assert rows(table) == ROWS[1:]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_manifest_protocol_and_feature_methods_change_the_table(
    lake: Catalog, table: DeltaTable
) -> None:
    table.generate("symlink_format_manifest")
    manifest = Path(lake.table("t").location) / "_symlink_format_manifest" / "manifest"
    assert len(manifest.read_text().splitlines()) == 1
    table.upgradeTableProtocol(1, 3)
    table.addFeatureSupport("deletionVectors")
    [row] = table.detail().collect()
    assert (row["minReaderVersion"], row["minWriterVersion"]) == (3, 7)
    assert "deletionVectors" in row["tableFeatures"]
    with pytest.raises(TxnLogError, match="history cannot be truncated"):
        table.dropFeatureSupport("deletionVectors", True)
    table.dropFeatureSupport("deletionVectors")
    [row] = table.detail().collect()
    assert (row["minReaderVersion"], row["minWriterVersion"]) == (1, 7)


def test_adding_a_feature_that_the_protocol_versions_include_keeps_the_protocol(
    spark: SparkSession, lake: Catalog
) -> None:
    lake.create_table("older", pa.schema([("id", pa.int64())]), properties=NUMBERED)
    older = DeltaTable.forName(spark, "older")
    assert older.detail().collect()[0]["minWriterVersion"] == 2
    for feature in ("appendOnly", "invariants"):
        older.addFeatureSupport(feature)
        assert older.detail().collect()[0]["minWriterVersion"] == 2
    older.addFeatureSupport("changeDataFeed")
    [row] = older.detail().collect()
    assert row["minWriterVersion"] == 7
    assert sorted(row["tableFeatures"]) == ["appendOnly", "changeDataFeed", "invariants"]


# Builders


def test_builder_creates_a_table_with_all_column_options(
    spark: SparkSession, lake: Catalog
) -> None:
    made = (
        DeltaTable.create(spark)
        .tableName("made")
        .addColumn("a", "int", nullable=False, comment="an a")
        .addColumn("b", LongType(), generatedAlwaysAs="a + 1")
        .addColumn("p", dataType="string")
        .partitionedBy("p")
        .comment("a table")
        .property("delta.logRetentionDuration", "interval 3 days")
        .execute()
    )
    assert made.toDF().schema == StructType(
        [
            StructField("a", IntegerType(), False, {"comment": "an a"}),
            StructField("b", LongType()),
            StructField("p", StringType()),
        ]
    )
    [row] = made.detail().collect()
    assert (row["description"], row["partitionColumns"]) == ("a table", ["p"])
    assert row["properties"]["delta.logRetentionDuration"] == "interval 3 days"
    with lake.begin() as tx:
        tx.write("made", spark.sql("SELECT 1 AS a, 'x' AS p"))
    assert rows(made) == [(1, 2, "x")]
    assert made.toDF().schema["a"].nullable is False


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_partition_columns_keep_not_null(spark: SparkSession, lake: Catalog) -> None:
    made = (
        DeltaTable.create(spark)
        .tableName("made")
        .addColumn("p", "int", nullable=False, comment="where")
        .addColumn("v", IntegerType(), generatedAlwaysAs="p + 10")
        .partitionedBy("p")
        .property("owner", "me")
        .execute()
    )
    expected = [
        StructField("p", IntegerType(), False, {"comment": "where"}),
        StructField("v", IntegerType()),
    ]
    assert made.toDF().schema.fields == expected
    with lake.begin() as tx:
        tx.write("made", spark.sql("SELECT 1 AS p, 11 AS v"))
    made.update(F.expr("v = 11"), {"p": F.expr("2")})
    assert rows(made) == [(2, 12)]
    assert made.toDF().schema.fields == expected
    assert made.detail().first()["properties"]["owner"] == "me"  # type: ignore[index]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_table_names_are_case_insensitive_unless_configured(
    spark: SparkSession, lake: Catalog, table: DeltaTable
) -> None:
    assert rows(DeltaTable.forName(spark, "T")) == ROWS
    assert rows(DeltaTable.forName(spark, "Default.T")) == ROWS
    with counting() as sent:
        assert known_name(spark, lake, "T") == "t"
    assert "list_tables" not in sent, "of many tables, one is looked for"
    lake.create_table("Äpfel", pa.schema([("id", pa.int64())]))
    assert known_name(spark, lake, "äPFEL") == "Äpfel"
    assert known_name(spark, lake, "U") == "U"
    with pytest.raises(AnalysisException, match="already exists"):
        DeltaTable.create(spark).tableName("T").addColumn("x", "int").execute()
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        assert not DeltaTable.isDeltaTable(spark, "T")
        DeltaTable.create(spark).tableName("T").addColumn("x", "int").execute()
    assert rows(DeltaTable.forName(spark, "t")) == ROWS
    assert rows(DeltaTable.forName(spark, "T")) == []


def test_builders_create_replace_or_keep_a_table(
    spark: SparkSession, lake: Catalog, table: DeltaTable, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="already exists"):
        DeltaTable.create(spark).tableName("t").addColumn("x", "int").execute()
    kept = DeltaTable.createIfNotExists(spark).tableName("t").addColumn("x", "int").execute()
    assert rows(kept) == ROWS
    DeltaTable.replace(spark).tableName("t").addColumn("x", "int").execute()
    assert table.toDF().columns == ["x"]
    assert table.history(1).first()["operation"] == "REPLACE TABLE"  # type: ignore[index]
    with pytest.raises(AnalysisException, match="cannot be replaced"):
        DeltaTable.replace(spark).tableName("none").addColumn("x", "int").execute()
    by_path = DeltaTable.createOrReplace().location(str(tmp_path / "lake" / "here"))
    by_path.addColumns(StructType([StructField("q", IntegerType())])).execute()
    assert DeltaTable.forPath(spark, str(tmp_path / "lake" / "here")).toDF().columns == ["q"]
    uri = lake.uri.with_table("u", "default").to_string()
    made = DeltaTable.create(spark).location(uri).addColumns([StructField("z", LongType())])
    assert made.execute().toDF().columns == ["z"]


BAD_BUILDS: list[tuple[Callable[[Any], Any], type[Exception]]] = [
    (lambda b: b.tableName(1), TypeError),
    (lambda b: b.location(1), TypeError),
    (lambda b: b.comment(1), TypeError),
    (lambda b: b.addColumn(1, "int"), TypeError),
    (lambda b: b.addColumn("a", 1), TypeError),
    (lambda b: b.addColumn("a", "1"), ParseException),
    (lambda b: b.addColumn("a", "int", nullable=1), TypeError),
    (lambda b: b.addColumn("a", "int", comment=1), TypeError),
    (lambda b: b.addColumn("a", "int", generatedAlwaysAs=1), TypeError),
    (lambda b: b.addColumn("a", "int", generatedByDefaultAs="1"), TypeError),
    (lambda b: b.addColumns(1), TypeError),
    (lambda b: b.addColumns([StructField("1", IntegerType()), 1]), TypeError),
    (lambda b: b.partitionedBy(1), TypeError),
    (lambda b: b.partitionedBy([1]), TypeError),
    (lambda b: b.clusterBy(1), TypeError),
    (lambda b: b.property(1, "1"), TypeError),
    (lambda b: b.property("1", 1), TypeError),
    (lambda b: b.addColumn("a", "int").execute(), AnalysisException),
]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_builders_reject_invalid_arguments(spark: SparkSession, lake: Catalog) -> None:
    def check(numbered: tuple[int, tuple[Callable[[Any], Any], type[Exception]]]) -> None:
        call, kind = numbered[1]
        with pytest.raises(kind):
            call(DeltaTable.create(spark))

    check_each(enumerate(BAD_BUILDS), check, name=itemgetter(0))


def test_ambiguous_merge_is_rejected(table: DeltaTable, spark: SparkSession) -> None:
    twice = spark.createDataFrame([("a", 1), ("a", 2)], ["k", "v"])
    with pytest.raises(UnsupportedOperationException, match="multiple source rows") as caught:
        table.merge(twice, "key = k").whenMatchedUpdate(set={"value": "v"}).execute()
    assert str(caught.value.getCondition()).startswith("DELTA_MULTIPLE_SOURCE_ROW")


# Copies


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_shallow_and_deep_clones_are_independent_tables(
    spark: SparkSession, lake: Catalog, table: DeltaTable
) -> None:
    table.delete("key = 'a'")
    shallow = table.cloneAtVersion(0, "shallow", isShallow=True)
    deep = table.clone("deep", properties={"delta.appendOnly": "true"})
    assert rows(shallow) == ROWS
    assert rows(deep) == ROWS[1:]
    assert deep.detail().first()["properties"]["delta.appendOnly"] == "true"  # type: ignore[index]
    shallow.delete("key = 'b'")
    assert rows(shallow) == [ROWS[0], *ROWS[2:]]
    assert rows(table) == ROWS[1:]
    with pytest.raises(AnalysisException, match="already exists"):
        table.clone("deep")
    assert rows(table.clone("deep", isShallow=True, replace=True)) == ROWS[1:]
    with pytest.raises(ValueError, match="isShallow needs to be a boolean"):
        table.clone("other", isShallow="yes")  # type: ignore[arg-type]
    again = spark.read.format("delta").load(lake.table("shallow").location)
    assert sorted(tuple(row) for row in again.collect()) == [ROWS[0], *ROWS[2:]]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_convert_to_delta_converts_parquet_files(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(ROWS, ["key", "value"]).coalesce(1)
    frame.write.parquet(str(tmp_path / "plain"))
    frame.write.partitionBy("value").parquet(str(tmp_path / "parts"))
    plain = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 'plain'}`")
    assert rows(plain) == ROWS
    parts = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 'parts'}`", "value int")
    assert rows(parts) == ROWS
    assert rows(DeltaTable.forPath(spark, str(tmp_path / "plain"))) == ROWS
