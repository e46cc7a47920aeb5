"""The classes have the same methods and arguments as those of delta-spark."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import deltasql.spark
from deltasql.exceptions import ConcurrentAppendError, TxnLogTableNotFoundError
from deltasql.phases import hooked
from deltasql.spark import exceptions, tables
from deltasql.spark.session import set_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog

DELTA_SPARK: dict[str, dict[str, str]] = {
    "DeltaTable": {
        "toDF": "",
        "alias": "aliasName",
        "generate": "mode",
        "delete": "condition=None",
        "update": "condition=None, set=None",
        "merge": "source, condition",
        "vacuum": "retentionHours=None",
        "history": "limit=None",
        "detail": "",
        "convertToDelta": "sparkSession, identifier, partitionSchema=None",
        "forPath": "sparkSession, path, hadoopConf=None",
        "forName": "sparkSession, tableOrViewName",
        "create": "sparkSession=None",
        "createIfNotExists": "sparkSession=None",
        "replace": "sparkSession=None",
        "createOrReplace": "sparkSession=None",
        "isDeltaTable": "sparkSession, identifier",
        "upgradeTableProtocol": "readerVersion, writerVersion",
        "addFeatureSupport": "featureName",
        "dropFeatureSupport": "featureName, truncateHistory=None",
        "restoreToVersion": "version",
        "restoreToTimestamp": "timestamp",
        "optimize": "",
        "clone": "target, isShallow=False, replace=False, properties=None",
        "cloneAtVersion": "version, target, isShallow=False, replace=False, properties=None",
        "cloneAtTimestamp": "timestamp, target, isShallow=False, replace=False, properties=None",
    },
    "DeltaMergeBuilder": {
        "whenMatchedUpdate": "condition=None, set=None",
        "whenMatchedUpdateAll": "condition=None",
        "whenMatchedDelete": "condition=None",
        "whenNotMatchedInsert": "condition=None, values=None",
        "whenNotMatchedInsertAll": "condition=None",
        "whenNotMatchedBySourceUpdate": "condition=None, set=None",
        "whenNotMatchedBySourceDelete": "condition=None",
        "withSchemaEvolution": "",
        "execute": "",
    },
    "DeltaTableBuilder": {
        "tableName": "identifier",
        "location": "location",
        "comment": "comment",
        "addColumn": "colName, dataType, nullable=True, generatedAlwaysAs=None, "
        "generatedByDefaultAs=None, comment=None",
        "addColumns": "cols",
        "partitionedBy": "*cols",
        "clusterBy": "*cols",
        "property": "key, value",
        "execute": "",
    },
    "DeltaOptimizeBuilder": {
        "where": "partitionFilter",
        "executeCompaction": "",
        "executeZOrderBy": "*cols",
    },
}
"""The public methods of `delta.tables` in delta-spark 4.4.0 with their arguments."""


def arguments(kind: type, name: str) -> str:
    bound = inspect.getattr_static(kind, name)
    function = getattr(bound, "__func__", bound)
    given = list(inspect.signature(function).parameters.values())
    shown = []
    for each in given if isinstance(bound, staticmethod) else given[1:]:
        if each.kind is each.KEYWORD_ONLY and each.default is not each.empty:
            continue  # a deltasql extension, which delta-spark does not have
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        default = "" if each.default is each.empty else f"={each.default!r}"
        shown.append(f"{star}{each.name}{default}")
    return ", ".join(shown)


@pytest.mark.parametrize("kind", DELTA_SPARK)
def test_methods_and_arguments_are_those_of_delta_spark(kind: str) -> None:
    ours = getattr(tables, kind)
    assert {name: arguments(ours, name) for name in DELTA_SPARK[kind]} == DELTA_SPARK[kind]


def test_module_exports_every_class_of_delta_tables() -> None:
    assert {*DELTA_SPARK, "IdentityGenerator"} <= set(tables.__all__)


def test_conflict_is_an_exception_of_delta_spark(lake: Catalog, table: tables.DeltaTable) -> None:
    others = iter(["key = 'a'"])

    def delete_meanwhile(phase: str) -> None:
        if phase == "staged" and (rows := next(others, None)):
            with lake.begin() as tx:
                tx.delete("t", rows)

    with (
        pytest.raises(exceptions.ConcurrentAppendException) as caught,
        hooked(delete_meanwhile),
    ):
        table.update(set={"value": "value + 1"})
    assert isinstance(caught.value, exceptions.DeltaConcurrentModificationException)
    assert isinstance(caught.value, ConcurrentAppendError)
    assert caught.value.getCondition() == "DELTA_CONCURRENT_APPEND"


def test_every_method_on_a_dropped_table_raises_sparks_error(
    lake: Catalog, table: tables.DeltaTable
) -> None:
    frame = table.toDF()
    lake.drop("t")
    calls: list[Callable[[], object]] = [
        table.toDF,
        table.history,
        table.detail,
        table.delete,
        table.vacuum,
        lambda: table.update(set={"value": "1"}),
        lambda: table.merge(frame, "true").whenMatchedDelete().execute(),
        lambda: table.optimize().executeCompaction(),
        lambda: table.generate("symlink_format_manifest"),
        lambda: table.restoreToVersion(0),
        lambda: table.restoreToTimestamp("2024-05-01"),
        lambda: table.upgradeTableProtocol(1, 3),
        lambda: table.addFeatureSupport("deletionVectors"),
        lambda: table.dropFeatureSupport("deletionVectors"),
        lambda: table.clone("copy"),
        lambda: table.cloneAtVersion(0, "copy"),
        lambda: table.cloneAtTimestamp("2024-05-01", "copy"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(TxnLogTableNotFoundError) as caught:
            call()
        assert isinstance(caught.value, AnalysisException), number
        assert caught.value.getCondition() == "DELTA_MISSING_DELTA_TABLE", number


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_clustered_table_is_clustered_for_delta_spark(spark: SparkSession, lake: Catalog) -> None:
    set_catalog(spark, lake)
    builder = tables.DeltaTable.create(spark).tableName("c").addColumn("id", "bigint")
    made = builder.addColumn("day", "date").clusterBy("day", "id").execute()
    for first in (0, 50):
        rows = spark.range(first, first + 50).selectExpr(
            "id", "date_add('2026-01-01', int(id % 7)) day"
        )
        deltasql.spark.write(rows, lake.table("c").uri)
    [result] = made.optimize().executeCompaction().collect()
    assert result.metrics.clusteringStats.inputOtherFiles.numFiles == result.metrics.numFilesRemoved
    with pytest.raises(AnalysisException, match="ZORDER BY"):
        made.optimize().executeZOrderBy("id")
    place = lake.table("c").location
    [theirs] = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()
    [ours] = made.detail().collect()
    assert theirs.clusteringColumns == ours.clusteringColumns == ["day", "id"]
    assert spark.read.format("delta").load(place).count() == 100
