"""The columns of rows that are written, and those of the table: checked, or changed after them."""

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
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import StructField, StructType
from deltasql.operations.rules.checks import generated_columns
from deltasql.operations.rules.conform import arrow_schema, check_names, check_types
from deltasql.operations.rules.schema_merge import merge_schemas, nullable, refuse_generated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.operations.target import TableStage


_TIMESTAMP_FEATURES = {
    "timestampNanos": ("TimestampNanos", "Cast the timestamps to microseconds"),
    "timestampNtz": ("TimestampWithoutTimezone", "Give the timestamps a zone"),
}


def refuse_other_partitions(
    target: TableStage,
    mode: str,
    predicate: str | None,
    schema_mode: str | None,
    partition_by: Sequence[str] | str | None,
) -> None:
    """Refuse other partition columns than the table has, unless all of it is replaced."""
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    changes_all = mode == "overwrite" and schema_mode == "overwrite" and predicate is None
    if wanted != list(target.partition_columns) and not changes_all:
        raise TxnLogSchemaError(
            "Specified table partitioning does not match table partitioning: "
            f"expected: {json.dumps(list(target.partition_columns))}, got: {json.dumps(wanted)}. "
            "To change partition columns, use full table overwrite with schema overwrite and no "
            "replaceWhere predicate.",
            table=target.name,
            prefix=GENERIC_ERROR,
            help="Leave out partition_by, or write with mode='overwrite' and "
            "schema_mode='overwrite'.",
        )


def follow_schema(
    target: TableStage,
    rows: pa.Schema | StructType,
    predicate: str | None,
    schema_mode: str | None,
    partition_by: Sequence[str] | str | None,
    *,
    cast_by_engine: bool,
) -> None:
    """Check the columns of the data against the table's, or change the table's after them."""
    present = arrow_schema(target.metadata.schema_string)
    is_same = isinstance(rows, pa.Schema) and rows.equals(present)
    if partition_by is None and is_same and schema_mode != "overwrite":
        return
    given = schema_from_any(rows)
    if schema_mode is None:
        _refuse_missing_feature(target, given)
        names = rows if isinstance(rows, pa.Schema) else arrow_schema(given.to_json())
        check_names(names, present, optional=generated_columns(target), table=target.name)
        if cast_by_engine:
            check_types(given, target.schema)
        return
    partitions = target.partition_columns
    if schema_mode == "overwrite" and predicate is None:
        wanted = _overwritten(target.schema, given)
        if partition_by is not None:
            partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    else:
        refuse_generated(target.schema, given)
        wanted = merge_schemas(target.schema, nullable(given, target.schema))
    if wanted == target.schema and partitions == target.partition_columns:
        return
    mapped, properties = with_new_columns_mapped(wanted, target.configuration)
    validate_schema(mapped, partitions)
    changed = replace(
        target.metadata,
        schema_string=mapped.to_json(),
        partition_columns=tuple(partitions),
        configuration=properties,
    )
    target.change_metadata(changed, upgraded_protocol(target.protocol, mapped, properties))


def partitions_behind(target: TableStage) -> None:
    """Put partition columns behind the others that were there before a schema grew.

    So does deltalake; new columns stay the last ones.
    """
    before = target.snapshot
    if before is None or target.staged.metadata is None or not target.partition_columns:
        return
    schema = target.schema
    if schema == before.schema or target.partition_columns != before.partition_columns:
        return
    known, last = set(before.schema.names), target.partition_columns
    ordered = [
        *(each for each in schema.fields if each.name in known and each.name not in last),
        *(each for name in last if (each := schema.find(name)) is not None),
        *(each for each in schema.fields if each.name not in known),
    ]
    changed = StructType(tuple(ordered))
    target.change_metadata(replace(target.metadata, schema_string=changed.to_json()))


def _overwritten(known: StructType, given: StructType) -> StructType:
    """Return the schema of rows that replace all others.

    Of a column with nothing but nulls the table knows the type, and another order is no other
    schema.
    """
    typed = StructType(tuple(_typed(known.find(each.name), each) for each in given.fields))
    is_known = len(typed.fields) == len(known.fields) and all(
        each == known.find(each.name) for each in typed.fields
    )
    return known if is_known else typed


def _typed(known: StructField | None, given: StructField) -> StructField:
    return replace(given, type=known.type) if known and given.type == "void" else given


def _refuse_missing_feature(target: TableStage, given: StructType) -> None:
    missing = required_features(given, {}) - writer_features(target.protocol)
    for feature, (name, instead) in _TIMESTAMP_FEATURES.items():
        if feature in missing:
            raise TxnLogTransactionError(
                f"Table features must be specified, please specify: {name}",
                table=target.name,
                help=f"{instead}, or add the feature with alter.add_feature(TableFeatures.{name}).",
            )
