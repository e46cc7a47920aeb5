"""Check the schema of written rows against the table's, or change the table's schema."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.exceptions import TxnLogSchemaError, TxnLogTransactionError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.protocol import required_features, upgraded_protocol, writer_features
from deltasql.model.schema.column_mapping import with_new_columns_mapped
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.identity import columns_of_rows
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import StructField, StructType
from deltasql.operations.rules.conform import arrow_schema, check_names, check_types
from deltasql.operations.rules.missing_columns import optional_columns
from deltasql.operations.rules.row_checks import widening_columns
from deltasql.operations.rules.schema_merge import merge_schemas, nullable, reject_generated

if TYPE_CHECKING:
    from deltasql.operations.table_stage import TableStage
    from deltasql.operations.write_request import WriteRequest


_TIMESTAMP_FEATURES = {
    "timestampNanos": ("TimestampNanos", "Cast the timestamps to microseconds"),
    "timestampNtz": ("TimestampWithoutTimezone", "Give the timestamps a zone"),
}


def check_partitioning(stage: TableStage, request: WriteRequest) -> None:
    """Raise if `partition_by` differs from the table's, unless the whole table is replaced."""
    partition_by = request.partition_by
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    replaces_schema = request.mode == request.schema_mode == "overwrite"
    changes_all = replaces_schema and request.predicate is None
    if wanted != list(stage.partition_columns) and not changes_all:
        raise TxnLogSchemaError(
            "Specified table partitioning does not match table partitioning: "
            f"expected: {json.dumps(list(stage.partition_columns))}, got: {json.dumps(wanted)}. "
            "To change partition columns, use full table overwrite with schema overwrite and no "
            "replaceWhere predicate.",
            table=stage.name,
            prefix=GENERIC_ERROR,
            help="Omit partition_by, or write with mode='overwrite' and schema_mode='overwrite'.",
        )


def check_or_change_schema(
    stage: TableStage,
    rows: pa.Schema | StructType,
    request: WriteRequest,
    *,
    cast_by_engine: bool,
) -> None:
    """Check the columns of the rows; if `schema_mode` is set, stage a schema change instead.

    `cast_by_engine` adds checks for types that an engine would cast without an error.
    """
    schema_mode, partition_by = request.schema_mode, request.partition_by
    present = arrow_schema(stage.metadata.schema_string)
    is_same = isinstance(rows, pa.Schema) and rows.equals(present)
    if partition_by is None and is_same and schema_mode != "overwrite":
        return
    given = columns_of_rows(schema_from_any(rows))
    if schema_mode is None:
        _check_features(stage, given)
        names = rows if isinstance(rows, pa.Schema) else arrow_schema(given.to_json())
        check_names(names, present, optional=optional_columns(stage), table=stage.name)
        if cast_by_engine:
            check_types(given, stage.schema)
        return
    partitions = stage.partition_columns
    if schema_mode == "overwrite" and request.predicate is None:
        wanted = _overwritten(stage.schema, given)
        if partition_by is not None:
            partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    else:
        reject_generated(stage.schema, given)
        wanted = merge_schemas(
            stage.schema, nullable(given, stage.schema), widening=widening_columns(stage)
        )
    if wanted == stage.schema and partitions == stage.partition_columns:
        return
    mapped, properties = with_new_columns_mapped(wanted, stage.configuration)
    validate_schema(mapped, partitions)
    changed = replace(
        stage.metadata,
        schema_string=mapped.to_json(),
        partition_columns=tuple(partitions),
        configuration=properties,
    )
    stage.change_metadata(changed, upgraded_protocol(stage.protocol, mapped, properties))


def move_partition_columns_last(stage: TableStage) -> None:
    """After a schema change, order the columns as deltalake does.

    The order is: the old columns that are not partition columns, the partition columns, the new
    columns.
    """
    before = stage.snapshot
    if before is None or stage.staged.metadata is None or not stage.partition_columns:
        return
    schema = stage.schema
    if schema == before.schema or stage.partition_columns != before.partition_columns:
        return
    known, last = set(before.schema.names), stage.partition_columns
    ordered = [
        *(each for each in schema.fields if each.name in known and each.name not in last),
        *(each for name in last if (each := schema.find(name)) is not None),
        *(each for each in schema.fields if each.name not in known),
    ]
    changed = StructType(tuple(ordered))
    stage.change_metadata(replace(stage.metadata, schema_string=changed.to_json()))


def _overwritten(known: StructType, given: StructType) -> StructType:
    """Return the schema of the table after it is overwritten by the schema of the rows.

    A column of the null type keeps the table's type. If only the order of the columns differs, the
    table's schema is unchanged.
    """
    typed = StructType(tuple(_typed(known.find(each.name), each) for each in given.fields))
    is_known = len(typed.fields) == len(known.fields) and all(
        each == known.find(each.name) for each in typed.fields
    )
    return known if is_known else typed


def _typed(known: StructField | None, given: StructField) -> StructField:
    return replace(given, type=known.type) if known and given.type == "void" else given


def _check_features(stage: TableStage, given: StructType) -> None:
    missing = required_features(given, {}) - writer_features(stage.protocol)
    for feature, (name, instead) in _TIMESTAMP_FEATURES.items():
        if feature in missing:
            raise TxnLogTransactionError(
                f"Table features must be specified, please specify: {name}",
                table=stage.name,
                help=f"{instead}, or add the feature with alter.add_feature(TableFeatures.{name}).",
            )
