"""Our classes take the calls that delta-spark's take: the same methods and arguments."""

from __future__ import annotations

import inspect

import pytest

from deltasql.spark import tables

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
            continue  # one of ours: no call of delta-spark's users has it
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        default = "" if each.default is each.empty else f"={each.default!r}"
        shown.append(f"{star}{each.name}{default}")
    return ", ".join(shown)


@pytest.mark.parametrize("kind", DELTA_SPARK)
def test_methods_and_arguments_are_those_of_delta_spark(kind: str) -> None:
    ours = getattr(tables, kind)
    assert {name: arguments(ours, name) for name in DELTA_SPARK[kind]} == DELTA_SPARK[kind]


def test_the_module_offers_every_class_of_the_other() -> None:
    assert {*DELTA_SPARK, "IdentityGenerator"} <= set(tables.__all__)
