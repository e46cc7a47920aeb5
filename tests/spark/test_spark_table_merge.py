"""Merges through `deltasql.spark.DeltaTable` give the same rows as delta-spark."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltasql.spark import DeltaTable
from deltasql.spark.session import set_catalog
from tests.each import check_each
from tests.selection import smoke
from tests.spark.support import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog


@pytest.fixture
def lake(spark: SparkSession, lake: Catalog) -> Catalog:
    """The catalog, registered in the session."""
    set_catalog(spark, lake)
    return lake


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.toDF().collect()), key=str)


def every_clause(table: DeltaTable, source: DataFrame) -> DataFrame:
    return (
        table.merge(source, "key = k")
        .whenMatchedUpdate("v < 0", {"value": "v + 0"})
        .whenMatchedDelete()
        .whenNotMatchedInsert(F.col("v") == -5, {"key": "k", "value": F.col("v") + 0})
        .whenNotMatchedInsert(values={"key": F.concat(F.lit("new "), F.col("k"))})
        .whenNotMatchedBySourceUpdate("value = 3", {"value": F.col("value") * 10})
        .whenNotMatchedBySourceDelete()
        .execute()
    )


def test_merge_clauses_apply_in_order(table: DeltaTable, source: DataFrame) -> None:
    [counts] = every_clause(table, source).collect()
    assert rows(table) == [("a", -1), ("c", 30), ("e", -5), ("new f", None)]
    assert counts.asDict() == {
        "num_affected_rows": 6,
        "num_updated_rows": 2,
        "num_deleted_rows": 2,
        "num_inserted_rows": 2,
    }
    [commit] = table.history(1).collect()
    assert commit["operation"] == "MERGE"
    assert commit["operationMetrics"]["numTargetRowsInserted"] == "2"
    assert "predicate" in commit["operationParameters"]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_aliases_distinguish_target_and_source(table: DeltaTable, source: DataFrame) -> None:
    named = source.toDF("key", "value").alias("s")
    (
        table.alias("t")
        .merge(named, F.expr("t.key = s.key"))
        .whenMatchedUpdate(set={"t.value": F.col("s.value") + F.col("t.value")})
        .whenNotMatchedInsertAll("s.value = -5")
        .execute()
    )
    assert rows(table) == [("a", 0), ("b", 2), ("c", 3), ("d", 4), ("e", -5)]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_frame_columns_distinguish_target_and_source(table: DeltaTable, source: DataFrame) -> None:
    other = source.toDF("key", "value")
    mine = table.toDF()
    (
        table.merge(other, mine.key == other["key"])
        .whenMatchedUpdate(set={"value": other.value + table.toDF().value})
        .whenNotMatchedInsert(values={"key": other.key})
        .execute()
    )
    assert rows(table) == [("a", 0), ("b", 2), ("c", 3), ("d", 4), ("e", None), ("f", None)]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_update_all_matches_columns_by_name(spark: SparkSession, table: DeltaTable) -> None:
    source = spark.sql("SELECT 9 AS VALUE, 'x' AS extra, 'a' AS Key")
    table.merge(source.alias("s"), "t.key = s.key").whenMatchedUpdateAll().execute()
    assert rows(table) == [("a", 9), ("b", 2), ("c", 3), ("d", 4)]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_merge_with_schema_evolution_adds_source_columns(
    spark: SparkSession, table: DeltaTable
) -> None:
    source = spark.sql("SELECT 'a' AS key, 'x' AS extra UNION ALL SELECT 'z', 'y'").alias("s")
    merged = table.alias("t").merge(source, "t.key = s.key").withSchemaEvolution()
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert table.toDF().columns == ["key", "value", "extra"]
    assert rows(table) == [
        *(("a", 1, "x"), ("b", 2, None), ("c", 3, None), ("d", 4, None), ("z", None, "y"))
    ]


NO_MERGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda m: m, "MERGE_MISSING_WHEN"),
    (lambda m: m.whenMatchedDelete().whenMatchedUpdate(set={"value": "1"}), "only the last"),
    (lambda m: m.whenNotMatchedInsertAll(), "Cannot resolve key in INSERT"),
    (lambda m: m.whenMatchedUpdateAll(), "Cannot resolve key in UPDATE"),
    (lambda m: m.whenMatchedUpdate(set={"none": "v"}), "none"),
    (lambda m: m.whenNotMatchedInsert(values={"key": "key"}), "key"),
    (lambda m: m.whenNotMatchedBySourceUpdate(set={"value": "v"}), "v"),
]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_invalid_merges_are_rejected(table: DeltaTable, source: DataFrame) -> None:
    def check(case: tuple[Callable[[Any], Any], str]) -> None:
        add, message = case
        with pytest.raises(AnalysisException, match=message):
            add(table.merge(source, "key = k")).execute()
        assert rows(table) == ROWS

    check_each(NO_MERGES, check, name=itemgetter(1))


WRONG: list[tuple[Callable[[Any, Any], Any], type[Exception], str]] = [
    (lambda t, s: t.merge(None, "key = k"), ValueError, "'source' in merge cannot be None"),
    (lambda t, s: t.merge([1], "key = k"), TypeError, "must be DataFrame"),
    (lambda t, s: t.merge(s, None), ValueError, "'condition' in merge cannot be None"),
    (lambda t, s: t.merge(s, 1), TypeError, "'condition' must be"),
    (
        lambda t, s: t.merge(s, "key = k").whenMatchedUpdate(),
        ValueError,
        "'set' in whenMatchedUpdate cannot be None",
    ),
    (
        lambda t, s: t.merge(s, "key = k").whenMatchedUpdate(1, {"value": "v"}),
        TypeError,
        "'condition' must be",
    ),
    (
        lambda t, s: t.merge(s, "key = k").whenNotMatchedInsert("v = 1"),
        ValueError,
        "'values' in whenNotMatchedInsert cannot be None",
    ),
    (
        lambda t, s: t.merge(s, "key = k").whenNotMatchedBySourceUpdate(set={"value": 1}),
        TypeError,
        "Values of dict in 'set' in whenNotMatchedBySourceUpdate",
    ),
    (lambda t, s: t.merge(s, "key = k").whenMatchedDelete(1), TypeError, "'condition' must be"),
]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_invalid_merge_arguments_are_named_in_the_error(
    table: DeltaTable, source: DataFrame
) -> None:
    def check(case: tuple[Callable[[Any, Any], Any], type[Exception], str]) -> None:
        call, kind, message = case
        with pytest.raises(kind, match=message):
            call(table, source)

    check_each(WRONG, check, name=itemgetter(2))


EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "case": lambda: F.when(F.col("value") > 2, "big").otherwise(F.lit("it's")),
    "struct": lambda: F.struct(F.col("key").alias("x"), "value").cast("string"),
    "between": lambda: F.col("value").between(2, 3).cast("string"),
    "isin": lambda: F.col("key").isin("a", "c").cast("string"),
    "not": lambda: (~F.col("key").like("a%") & F.col("value").isNotNull()).cast("string"),
    "array": lambda: F.array(F.lit(5), F.lit(6))[1].cast("string"),
    "lambda": lambda: F.transform(F.array("value"), lambda x: x + 1).cast("string"),
    "map": lambda: F.create_map(F.lit("k"), F.col("key"))["k"],
    "text": lambda: F.concat_ws("-", F.substring("key", 1, 1), F.lit("back\\slash 'q' \"d\"")),
    "numbers": lambda: (F.col("value") / 2 + F.lit(1.5) - 3 % F.col("value")).cast("string"),
    "negative": lambda: (-F.col("value") * F.lit(-2)).cast("string"),
    "dates": lambda: F.date_add(F.to_date(F.lit("2024-02-28")), 2).cast("string"),
    "regexp": lambda: F.regexp_replace("key", "[ab]+", "$0!"),
    "null": lambda: F.coalesce(F.lit(None), F.col("key").eqNullSafe("a").cast("string")),
    "json": lambda: F.to_json(F.struct("key")),
    "sha": lambda: F.sha2("key", 256),
}


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    "name",
    smoke(EXPRESSIONS, ("case", "struct", "lambda", "text"), "more of Spark's expressions"),
)
def test_column_expressions_evaluate_as_in_spark(table: DeltaTable, name: str) -> None:
    column = EXPRESSIONS[name]()
    before = table.toDF().select(column.alias("key"), "value").collect()
    table.update(set={"key": column})
    assert rows(table) == sorted((tuple(row) for row in before), key=str)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_literals_keep_their_types(spark: SparkSession, lake: Catalog) -> None:
    import datetime as dt
    import decimal

    values = {
        "d": dt.date(2024, 2, 29),
        "at": dt.datetime(2024, 2, 29, 12, 30, 0, 5),
        "n": decimal.Decimal("12.50"),
        "x": 1.5,
        "b": b"\x00\xff",
        "l": 2**40,
        "ok": True,
        "s": 'a\'b\\c\n"d"',
    }
    kinds = (
        "d date, at timestamp, n decimal(10,2), x double, b binary, l long, ok boolean, s string"
    )
    with lake.begin() as tx:
        tx.write("t", spark.createDataFrame([(None,) * 7 + ("",)], kinds))
    table = DeltaTable.forName(spark, "t")
    table.update(set={name: F.lit(value) for name, value in values.items()})
    [row] = table.toDF().collect()
    assert {name: row[name] for name in values} == values
    table.delete(F.col("at") == F.lit(values["at"]))
    assert rows(table) == []
