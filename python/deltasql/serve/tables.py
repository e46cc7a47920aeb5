"""Requests about tables: list, load, alter, drop, rename, delete rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.schema import reject_nanoseconds
from deltasql.exceptions import TableChangedError, UnsupportedFeatureError
from deltasql.model.clustering import column_names
from deltasql.model.features.row_tracking import materialized_columns
from deltasql.model.schema.convert import schema_from_spark
from deltasql.model.schema.identity import START
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    has_void,
    schema_of,
    with_members,
)
from deltasql.operations.alter.cluster_by import cluster_by, clustering_columns
from deltasql.operations.alter.properties import unset_table_properties
from deltasql.operations.rules.schema_merge import GENERATED
from deltasql.serve.names import snapshot_of, stage_of, table_name
from deltasql.serve.read.filters import condition_of
from deltasql.storage.location import address_url, root_address
from deltasql.uri import split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.actions import Metadata
    from deltasql.operations.table_stage import TableStage
    from deltasql.serve.transactions import Transactions
    from deltasql.store.records import TableRow


def listed(catalog: Catalog, transactions: Transactions, body: Mapping[str, Any]) -> dict[str, Any]:
    """List the names of the tables in a namespace, also of those that a transaction creates."""
    namespace = str(body["namespace"])
    tables = catalog.tables(namespace) if catalog.store.exists() else []
    names = [each.name for each in tables]
    with transactions.reading(body) as tx:
        for name in () if tx is None else filter(tx.creates, tx.tables):
            within, short = split_table_name(name)
            if within == namespace:
                names.append(short)
    return {"tables": names}


def loaded(catalog: Catalog, transactions: Transactions, body: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a table at a version or timestamp, or as the transaction of the request sees it."""
    if body.get("version") is None and body.get("timestamp_us") is None:
        with transactions.reading(body) as tx:
            if tx is not None:
                return {**_staged(stage_of(tx, body)), "read_in": tx.txn_id}
    snapshot = snapshot_of(catalog, body)
    return _described(
        snapshot.table, snapshot.version, snapshot.metadata, clustering_columns(snapshot)
    )


def unchanged_stage(
    tx: MultiTableTransaction, body: Mapping[str, Any], *, more_columns: bool = False
) -> TableStage:
    """Return the table of a request as a transaction sees it.

    Raise if a statement of the transaction has changed what the client knows about the table. With
    `more_columns`, new columns after the known columns are allowed.
    """
    stage = stage_of(tx, body)
    reject_changed(stage, body, more_columns=more_columns)
    return stage


def reject_changed(
    table: TableStage | LiveFiles, body: Mapping[str, Any], *, more_columns: bool = False
) -> None:
    """Raise TableChangedError if a table differs from what the client knows about it.

    With `more_columns`, new columns after the known columns are allowed.
    """
    known = body.get("known")
    if known is None:
        return
    now, schema = shown_schema(table.schema), schema_of(known["schema"])
    if (
        _begins_with(now, schema)
        and (more_columns or _begins_with(schema, now))
        and known["partition_columns"] == list(table.partition_columns)
        and known["has_row_ids"] == bool(table.row_columns)
    ):
        return
    name = table_name(body)
    raise TableChangedError(
        f"the columns or the row tracking of {name} changed after the statement was analysed",
        table=name,
        help="Run the statement again. For a DataFrame, read the table again first.",
    )


def _begins_with(data_type: DataType, known: DataType) -> bool:
    """Return whether a type equals a known type, except for new fields at the end of structs."""
    if isinstance(data_type, StructType) and isinstance(known, StructType):
        return len(data_type.fields) >= len(known.fields) and all(
            field.name == other.name and _begins_with(field.type, other.type)
            for field, other in zip(data_type.fields, known.fields, strict=False)
        )
    if isinstance(data_type, ArrayType) and isinstance(known, ArrayType):
        return _begins_with(data_type.element_type, known.element_type)
    if isinstance(data_type, MapType) and isinstance(known, MapType):
        return _begins_with(data_type.key_type, known.key_type) and _begins_with(
            data_type.value_type, known.value_type
        )
    return data_type == known


def _staged(stage: TableStage) -> dict[str, Any]:
    """Return what a client needs to know about a table with its staged changes."""
    version = -1 if stage.snapshot is None else stage.snapshot.version
    clustering = column_names(stage.clustered_by(), stage.metadata)
    return _described(stage.staged.table, version, stage.metadata, clustering)


def _described(
    table: TableRow, version: int, metadata: Metadata, clustering: list[str]
) -> dict[str, Any]:
    schema = schema_of(metadata.schema_string)
    reject_types_that_spark_lacks(schema)
    return {
        "id": table.table_uuid,
        "version": version,
        "location": address_url(root_address(table.location)),
        "schema": shown_schema(schema).to_json(),
        "partition_columns": list(metadata.partition_columns),
        "clustering_columns": clustering,
        "has_row_ids": bool(materialized_columns(metadata.configuration)),
        "properties": dict(metadata.configuration),
        "comment": metadata.description,
    }


def shown_schema(schema: StructType) -> StructType:
    """Return a schema without Delta's own column metadata.

    Generated and identity columns are nullable, so that Spark accepts rows without them.
    """
    return StructType(tuple(_shown(field) for field in schema.fields))


def _shown(field: StructField) -> StructField:
    metadata = {k: v for k, v in field.metadata.items() if not k.startswith("delta.")}
    is_computed = GENERATED in field.metadata or START in field.metadata
    nullable = field.nullable or is_computed
    return StructField(field.name, with_members(field.type, _shown), nullable, metadata)


def reject_types_that_spark_lacks(schema: StructType) -> None:
    """Raise for columns that Spark's Parquet reader and writer do not support."""
    reject_nanoseconds(schema)
    for field in schema.fields:
        if has_void(field.type):
            raise UnsupportedFeatureError(
                f"column {field.name!r} has the type void, which the Spark catalog does not read",
                features=("void",),
                help="Read this table with deltasql.spark.read, or drop the column.",
            )


def drop(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop a table; `undrop` restores it."""
    catalog.drop(table_name(body))
    return {}


def rename(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Change the name or the namespace of a table."""
    new = {"namespace": body["new_namespace"], "name": body["new_name"]}
    catalog.rename(table_name(body), table_name(new))
    return {}


def delete(transactions: Transactions, body: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the rows that match all filters; without filters, all rows."""
    name = table_name(body)
    with transactions.changing(body) as tx:
        tx.delete(name, condition_of(body.get("filters") or ()))
    return {}


def alter(catalog: Catalog, transactions: Transactions, body: Mapping[str, Any]) -> dict[str, Any]:
    """Apply changes to a table in one commit, and describe the table after it."""
    name = table_name(body)
    with transactions.changing(body) as tx:
        for change in body["changes"]:
            apply = _CHANGES.get(change["change"])
            if apply is None:
                raise UnsupportedFeatureError(
                    f"ALTER TABLE {name}: {change['change']} is not supported",
                    features=(str(change["change"]),),
                    help=f"Supported changes: {', '.join(sorted(_CHANGES))}.",
                )
            apply(tx, name, change)
    return loaded(catalog, transactions, body)


def _add_column(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    new = schema_from_spark(change["schema"])
    *outer, _ = change["column"]
    for name in reversed(outer):
        new = StructType((StructField(name, new),))
    tx.add_columns(table, new)


def _rename_column(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.rename_column(table, _dotted(change), str(change["new_name"]))


def _drop_column(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.drop_columns(table, [_dotted(change)])


def _drop_not_null(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.drop_column_not_null(table, _dotted(change))


def _column_type(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.set_column_type(table, _dotted(change), schema_from_spark(change["schema"]).fields[0].type)


def _column_default(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    default = change["default"]
    tx.set_column_default(table, _dotted(change), None if default is None else str(default))


def _column_comment(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.set_column_metadata(table, _dotted(change), {"comment": str(change["comment"])})


def _set_property(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    if change["key"] == "comment":
        tx.set_table_description(table, str(change["value"]))
    else:
        values = {str(change["key"]): str(change["value"])}
        # As in Delta's SQL, a table may have properties of the user.
        tx.set_table_properties(table, values, raise_if_not_exists=False)


def _unset_property(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    unset_table_properties(tx.target(table), [str(change["key"])], raise_if_not_exists=False)


def _add_constraint(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    tx.add_constraint(table, {str(change["name"]): str(change["condition"])})


def _drop_constraint(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    exists = not change.get("if_exists")
    tx.drop_constraint(table, str(change["name"]), raise_if_not_exists=exists)


def _cluster_by(tx: MultiTableTransaction, table: str, change: Mapping[str, Any]) -> None:
    cluster_by(tx.target(table), list(change["columns"]))


def _dotted(change: Mapping[str, Any]) -> str:
    return ".".join(change["column"])


_CHANGES: Mapping[str, Callable[[MultiTableTransaction, str, Mapping[str, Any]], None]] = {
    "add column": _add_column,
    "rename column": _rename_column,
    "drop column": _drop_column,
    "drop not null": _drop_not_null,
    "column type": _column_type,
    "column default": _column_default,
    "column comment": _column_comment,
    "add constraint": _add_constraint,
    "drop constraint": _drop_constraint,
    "cluster by": _cluster_by,
    "set property": _set_property,
    "unset property": _unset_property,
}
