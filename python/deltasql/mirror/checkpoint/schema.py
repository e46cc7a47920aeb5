"""The Arrow schema of a classic checkpoint: one column per kind of action, one row per action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.model.properties import TableProperties
from deltasql.model.typed_stats import partition_type, stats_type

if TYPE_CHECKING:
    from deltasql.model.actions import Metadata

TEXT_MAP = pa.map_(pa.string(), pa.string())
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
