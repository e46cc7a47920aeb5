"""The rows of a classic checkpoint: their Arrow schema, and their conversion from the database.

A checkpoint has one column per kind of action and one row per action.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.model.properties import TableProperties
from deltasql.model.typed_stats import StatsParser, partition_type, stats_type, typed_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.model.actions import Action, Metadata

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
REMOVES_PAGE = pa.schema(
    [
        ("version", pa.int64()),
        ("ordinal", pa.int64()),
        ("path", pa.string()),
        ("deletion_timestamp", pa.int64()),
        ("extended_file_metadata", pa.bool_()),
        ("partition_values", pa.string()),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", pa.string()),
        ("deletion_vector", pa.string()),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
    ]
)


def checkpoint_schema(metadata: Metadata) -> pa.Schema:
    """Return the schema of a table's checkpoint; table properties choose the form of statistics."""
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


class CheckpointRows:
    """Builds the rows of one checkpoint; partition values are converted once per partition."""

    def __init__(self, schema: pa.Schema, partitions: pa.Table) -> None:
        self.schema = schema
        self._add = schema.field("add").type
        self._partition_ids = partitions["partition_id"].combine_chunks()
        texts = partitions["partition_values"].to_pylist()
        values = [json.loads(text) for text in texts]
        self._partitions = pa.array([list(each.items()) for each in values], TEXT_MAP)
        self._typed_partitions = self._typed(values)
        self._stats = (
            StatsParser(self._add.field("stats_parsed").type)
            if self._add.get_field_index("stats_parsed") >= 0
            else None
        )

    def actions(self, actions: Iterable[Action]) -> pa.Table:
        """Return the rows of actions that are not files."""
        return pa.Table.from_pylist([each.to_dict() for each in actions], self.schema)

    def adds(self, files: pa.Table) -> pa.Table:
        """Return the rows of live files, from the result of `files_all`."""
        count = files.num_rows
        partition = pc.index_in(_column(files, "partition_id"), value_set=self._partition_ids)
        stats = _or_null(_column(files, "stats"))
        columns: dict[str, Any] = {
            "path": _column(files, "path"),
            "partitionValues": self._partitions.take(partition),
            "size": _column(files, "size"),
            "modificationTime": _column(files, "modification_time"),
            # Actions of a checkpoint never change data.
            "dataChange": _constant(False, count),
            "stats": stats,
            "tags": _from_json(_column(files, "tags"), TEXT_MAP),
            "deletionVector": _from_json(_column(files, "deletion_vector"), DELETION_VECTOR),
            "baseRowId": _column(files, "base_row_id"),
            "defaultRowCommitVersion": _column(files, "default_row_commit_version"),
            "clusteringProvider": _or_null(_column(files, "clustering_provider")),
        }
        if self._typed_partitions is not None:
            columns["partitionValues_parsed"] = self._typed_partitions.take(partition)
        if self._stats is not None:
            columns["stats_parsed"] = self._stats.parse(stats)
        return self._rows("add", columns)

    def removes(self, removes: pa.Table) -> pa.Table:
        """Return the rows of tombstones, from the result of `removes_page`."""
        columns = {
            "path": _column(removes, "path"),
            "deletionTimestamp": _column(removes, "deletion_timestamp"),
            "dataChange": _constant(False, removes.num_rows),
            "extendedFileMetadata": _column(removes, "extended_file_metadata"),
            "partitionValues": _from_json(_column(removes, "partition_values"), TEXT_MAP),
            "size": _column(removes, "size"),
            "stats": _or_null(_column(removes, "stats")),
            "tags": _from_json(_column(removes, "tags"), TEXT_MAP),
            "deletionVector": _from_json(_column(removes, "deletion_vector"), DELETION_VECTOR),
            "baseRowId": _column(removes, "base_row_id"),
            "defaultRowCommitVersion": _column(removes, "default_row_commit_version"),
        }
        return self._rows("remove", columns)

    def _rows(self, kind: str, columns: dict[str, Any]) -> pa.Table:
        own = self.schema.field(kind).type
        struct = pa.StructArray.from_arrays(
            [columns[field.name].cast(field.type) for field in own.fields], fields=list(own.fields)
        )
        arrays = [
            struct if field.name == kind else pa.nulls(len(struct), field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _typed(self, partitions: list[dict[str, str | None]]) -> pa.StructArray | None:
        if self._add.get_field_index("partitionValues_parsed") < 0:
            return None
        fields = self._add.field("partitionValues_parsed").type.fields
        rows = [
            # In Delta an empty string also means a null partition value.
            {f.name: typed_value(each.get(f.name) or None, f.type) for f in fields}
            for each in partitions
        ]
        return pa.array(rows, pa.struct(fields))


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _constant(value: bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)


def _or_null(texts: pa.Array) -> pa.Array:
    """Replace empty strings by null, because a bulk read returns NULL as an empty string."""
    empty = pc.equal(texts, "")
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, pa.scalar(None, texts.type), texts)


def _from_json(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert JSON objects; each distinct string is converted only once."""
    if not pc.any(pc.not_equal(texts, "")).as_py():
        return pa.nulls(len(texts), data_type)
    encoded = texts.dictionary_encode()
    bodies = [json.loads(text) if text else None for text in encoded.dictionary.to_pylist()]
    if pa.types.is_map(data_type):
        bodies = [None if body is None else list(body.items()) for body in bodies]
    return pa.array(bodies, data_type).take(encoded.indices)
