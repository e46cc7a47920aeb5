"""The Arrow schema of a classic checkpoint: one column per kind of action, one row per action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import (
    StructType,
    column_mapping_mode,
    decimal_type,
    has_order,
    indexed_columns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import DataType

TEXT_MAP = pa.map_(pa.string(), pa.string())
_PRIMITIVES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_nanos": pa.timestamp("ns", "UTC"),
    "timestamp_nanos_ntz": pa.timestamp("ns"),
}
TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", TEXT_MAP),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", TEXT_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", TEXT_MAP),
        ("createdTime", pa.int64()),
    ]
)
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
DOMAIN = pa.struct(
    [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
)


def checkpoint_schema(metadata: Metadata) -> pa.Schema:
    """Return the schema of a table's checkpoint; its properties choose the form of statistics."""
    return pa.schema(
        [
            ("txn", TXN),
            ("add", _add_type(metadata)),
            ("remove", REMOVE),
            ("metaData", METADATA),
            ("protocol", PROTOCOL),
            ("domainMetadata", DOMAIN),
        ]
    )


def stats_type(metadata: Metadata) -> pa.StructType:
    """Return the type of `stats_parsed`: bounds with the table's types and physical names."""
    schema = StructType.from_json(metadata.schema_string)
    leaves = indexed_columns(schema, metadata.partition_columns, metadata.configuration)
    bounds = {
        leaf.physical_path: arrow_type
        for leaf in leaves
        if has_order(leaf.type) and (arrow_type := primitive_type(leaf.type)) is not None
    }
    fields = [("numRecords", pa.int64())]
    if bounds:  # Parquet has no empty structs
        fields += [("minValues", nested_struct(bounds)), ("maxValues", nested_struct(bounds))]
    if leaves:
        nulls = {leaf.physical_path: pa.int64() for leaf in leaves}
        fields.append(("nullCount", nested_struct(nulls)))
    return pa.struct([*fields, ("tightBounds", pa.bool_())])


def partition_type(metadata: Metadata) -> pa.StructType | None:
    """Return the type of `partitionValues_parsed`; None if no partition column has a type."""
    schema = StructType.from_json(metadata.schema_string)
    mode = column_mapping_mode(metadata.configuration)
    fields = []
    for name in metadata.partition_columns:
        column = schema.find(name)
        arrow_type = None if column is None else primitive_type(column.type)
        if column is not None and arrow_type is not None:
            fields.append((column.physical_name(mode), arrow_type))
    return pa.struct(fields) if fields else None


def primitive_type(data_type: DataType) -> pa.DataType | None:
    """Return the Arrow type of a primitive Delta type; None for other types.

    >>> primitive_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    decimal = decimal_type(data_type)
    if decimal is not None:
        return pa.decimal128(*decimal)
    return _PRIMITIVES.get(data_type) if isinstance(data_type, str) else None


def _add_type(metadata: Metadata) -> pa.StructType:
    properties = TableProperties(metadata.configuration)
    fields = [
        ("path", pa.string()),
        ("partitionValues", TEXT_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
    ]
    if properties.stats_as_json:
        fields.append(("stats", pa.string()))
    fields += [
        ("tags", TEXT_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
    if properties.stats_as_struct:
        partitions = partition_type(metadata)
        if partitions is not None:
            fields.append(("partitionValues_parsed", partitions))
        fields.append(("stats_parsed", stats_type(metadata)))
    return pa.struct(fields)


def nested_struct(leaves: Mapping[tuple[str, ...], pa.DataType]) -> pa.StructType:
    """Build nested structs from the paths and types of their leaves."""
    members: dict[str, pa.DataType | dict[tuple[str, ...], pa.DataType]] = {}
    for (first, *rest), data_type in leaves.items():
        if rest:
            inner = members.setdefault(first, {})
            inner[tuple(rest)] = data_type
        else:
            members[first] = data_type
    return pa.struct(
        [
            (name, nested_struct(each) if isinstance(each, dict) else each)
            for name, each in members.items()
        ]
    )
