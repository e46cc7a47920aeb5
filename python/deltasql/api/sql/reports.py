"""The results of DESCRIBE and SHOW as Arrow tables, with the columns of Spark and delta-spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.api.inspect.definition import type_text
from deltasql.api.inspect.delta_rows import detail_row, history_row
from deltasql.model.statements.tokens import matching

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot

_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_TEXT, _LONG, _TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
_TEXTS = pa.map_(_TEXT, _TEXT)
_JOB = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
_HISTORY = pa.schema(
    {
        "version": _LONG,
        "timestamp": _TIME,
        "userId": _TEXT,
        "userName": _TEXT,
        "operation": _TEXT,
        "operationParameters": _TEXTS,
        "job": pa.struct(dict.fromkeys(_JOB, _TEXT)),
        "notebook": pa.struct({"notebookId": _TEXT}),
        "clusterId": _TEXT,
        "readVersion": _LONG,
        "isolationLevel": _TEXT,
        "isBlindAppend": pa.bool_(),
        "operationMetrics": _TEXTS,
        "userMetadata": _TEXT,
        "engineInfo": _TEXT,
    }
)
_DETAIL = pa.schema(
    {
        "format": _TEXT,
        "id": _TEXT,
        "name": _TEXT,
        "description": _TEXT,
        "location": _TEXT,
        "createdAt": _TIME,
        "lastModified": _TIME,
        "partitionColumns": pa.list_(_TEXT),
        "clusteringColumns": pa.list_(_TEXT),
        "numFiles": _LONG,
        "sizeInBytes": _LONG,
        "properties": _TEXTS,
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "tableFeatures": pa.list_(_TEXT),
    }
)
_COLUMNS = pa.schema({"col_name": _TEXT, "data_type": _TEXT, "comment": _TEXT})


def columns(stage: TableStage, extended: bool) -> pa.Table:
    """Return the columns of a table and, like Spark, its partition columns below them."""
    fields = {each.name: each for each in stage.schema.fields}
    rows = [
        (name, type_text(f.type, _SQL_NAMES), f.metadata.get("comment"))
        for name, f in fields.items()
    ]
    if stage.partition_columns:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [
            (name, type_text(fields[name].type, _SQL_NAMES), fields[name].metadata.get("comment"))
            for name in stage.partition_columns
        ]
    if extended:
        rows += [
            ("", "", ""),
            ("# Detailed Table Information", "", ""),
            ("Name", stage.name, ""),
            ("Comment", stage.metadata.description or "", ""),
            ("Location", stage.location, ""),
            ("Provider", "delta", ""),
            ("Table Properties", _listed(stage.configuration.items()), ""),
        ]
    return _table(rows, _COLUMNS)


def detail(snapshot: Snapshot) -> pa.Table:
    """Return the row of DESCRIBE DETAIL."""
    return _table([detail_row(snapshot, snapshot.table.location)], _DETAIL)


def history(snapshot: Snapshot, limit: int | None) -> pa.Table:
    """Return the rows of DESCRIBE HISTORY, newest first."""
    rows = [] if limit == 0 else [history_row(each) for each in snapshot.history(limit)]
    return _table(rows, _HISTORY)


def tables(catalog: BaseCatalog, namespace: str | None, pattern: str | None) -> pa.Table:
    """Return the rows of SHOW TABLES."""
    found = catalog.tables(namespace) if catalog.store.exists() else []
    shown = set(matching([each.name for each in found], pattern))
    rows = [(each.namespace, each.name, False) for each in found if each.name in shown]
    return _table(
        rows, pa.schema({"namespace": _TEXT, "tableName": _TEXT, "isTemporary": pa.bool_()})
    )


def namespaces(catalog: BaseCatalog, pattern: str | None) -> pa.Table:
    """Return the rows of SHOW NAMESPACES."""
    rows = catalog.store.query("list_namespaces") if catalog.store.exists() else []
    names = matching([row[0] for row in rows], pattern)
    return pa.table({"namespace": pa.array(names, _TEXT)})


def properties(stage: TableStage, key: str | None) -> pa.Table:
    """Return the rows of SHOW TBLPROPERTIES."""
    found = sorted(stage.configuration.items())
    if key is not None:
        missing = f"Table {stage.name} does not have property: {key}"
        found = [(key, stage.configuration.get(key, missing))]
    return _table(found, pa.schema({"key": _TEXT, "value": _TEXT}))


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return "[" + ",".join(f"{key}={value}" for key, value in sorted(pairs)) + "]"


def _table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    given = list(rows)
    arrays = [
        pa.array([row[number] for row in given], field.type) for number, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
