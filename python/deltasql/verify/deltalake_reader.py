"""Compare what stock deltalake reads from a published log with the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.mirror.log.file_tables import is_local_path
from deltasql.model.json_text import read_stats
from deltasql.model.protocol import reader_features
from deltasql.model.schema.schema import StructType, column_mapping_mode
from deltasql.model.typed_stats import is_nanoseconds, typed_value
from deltasql.verify.compare import compare_files, compare_mappings, same_json
from deltasql.verify.report import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.model.actions import Protocol
    from deltasql.verify.report import Differences
    from deltasql.verify.sql_state import SqlState

# The reader features that deltalake supports; tables with other features are not compared.
_READER_FEATURES = frozenset(
    {"columnMapping", "timestampNtz", "timestampNanos", "deletionVectors", "v2Checkpoint"}
)
_SOURCE = "deltalake"
_STATS = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}
_BATCH_ROWS = 10_000


def unsupported_by_deltalake(protocol: Protocol) -> str:
    """Return the reader features that deltalake does not support, as a string; empty if none."""
    return ", ".join(sorted(reader_features(protocol) - _READER_FEATURES))


def compare_deltalake(
    sql: SqlState, location: str, options: Mapping[str, str], found: Differences
) -> None:
    """Open the published table with stock deltalake at the version of `sql`, and compare them."""
    version = sql.version
    table = deltalake.DeltaTable(location, version=version, storage_options=dict(options) or None)
    at: dict[str, Any] = {"version": version, "source": _SOURCE}
    if table.version() != version:
        found.add(Difference("version", sql=version, log=table.version(), **at))
    _compare_metadata(sql, table, found, at)
    protocol = table.protocol()
    seen_protocol = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    compare_mappings("protocol", sql.protocol.body(), seen_protocol, found, **at)
    for app_id, txn in sql.txns.items():
        seen = table.transaction_version(app_id)
        # deltalake does not return expired transactions.
        if seen != txn.version and not (seen is None and sql.expired(txn)):
            found.add(Difference("transaction", path=app_id, sql=txn.version, log=seen, **at))
    _compare_files(sql, pa.table(table.get_add_actions(flatten=False)), found)


def _compare_metadata(
    sql: SqlState, table: deltalake.DeltaTable, found: Differences, at: dict[str, Any]
) -> None:
    metadata, seen = sql.metadata, table.metadata()
    ours = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "partitionColumns": list(metadata.partition_columns),
        "createdTime": metadata.created_time,
        "configuration": dict(metadata.configuration),
    }
    theirs = {
        "id": str(seen.id),
        "name": seen.name,
        "description": seen.description,
        "partitionColumns": seen.partition_columns,
        "createdTime": seen.created_time,
        "configuration": seen.configuration,
    }
    compare_mappings("metadata", ours, theirs, found, **at)
    schema = table.schema().to_json()
    if not same_json(metadata.schema_string, schema):
        found.add(Difference("schema", sql=metadata.schema_string, log=schema, **at))


def _compare_files(sql: SqlState, seen: pa.Table, found: Differences) -> None:
    # deltalake identifies a file by its path alone.
    ours = sql.files.set_column(
        sql.files.schema.get_field_index("deletion_vector"),
        "deletion_vector",
        pa.nulls(sql.files.num_rows, pa.string()),
    )
    theirs = seen.rename_columns(
        ["size" if name == "size_bytes" else name for name in seen.schema.names]
    ).append_column("deletion_vector", pa.nulls(seen.num_rows, pa.string()))
    theirs = _without_equivalent_paths(theirs, ours)
    fields = [
        each for each in ("size", "modification_time", "num_records") if each in theirs.schema.names
    ]
    at: dict[str, Any] = {"version": sql.version, "source": _SOURCE}
    compare_files(ours, theirs, found, fields=fields, **at)
    physical = _physical_names(sql)
    for path, name, left, right in _value_differences(ours, theirs, physical):
        found.add(Difference("file", path=path, field=name, sql=left, log=right, **at))


def _without_equivalent_paths(seen: pa.Table, sql: pa.Table) -> pa.Table:
    """Remove files that deltalake wrongly lists as live.

    A file may be added as `/p` and removed as `file:/p`, which are two files to deltalake. Our own
    replay treats them as the same file, and is compared with the database separately.
    """
    paths = seen["path"].combine_chunks()
    is_known = pc.is_in(paths, sql["path"].combine_chunks())
    return seen.filter(pc.or_(is_known, pc.invert(is_local_path(paths))))


def _value_differences(
    sql: pa.Table, seen: pa.Table, physical: Mapping[str, str]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield (path, field, database, deltalake) of partition values and statistics that differ."""
    places = pc.index_in(sql["path"], seen["path"].combine_chunks())
    ours = sql.select(["path", "partition", "stats"]).filter(pc.is_valid(places))
    theirs = seen.take(pc.drop_null(places))
    for start in range(0, ours.num_rows, _BATCH_ROWS):
        part = theirs.slice(start, _BATCH_ROWS)
        leaves = list(_leaves(part, physical))
        for row, file in enumerate(ours.slice(start, _BATCH_ROWS).to_pylist()):
            # Parse numbers as strings, because decimals have more digits than a float.
            stats = read_stats(file["stats"], parse_float=str)
            values = {**stats, "partition": json.loads(file["partition"])}
            for group, names, kind, column in leaves:
                left, right = _at(values, (group, *names)), column[row]
                if not _same(left, right, kind):
                    yield file["path"], ".".join((group, *names)), left, right


def _leaves(
    seen: pa.Table, physical: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...], pa.DataType, list[Any]]]:
    """Yield (group, names, type, values) of each partition and statistics column."""
    for name, group in [("partition", "partition"), *_STATS.items()]:
        if name in seen.schema.names:
            yield from _struct_leaves(group, (), seen[name].combine_chunks(), physical)


def _struct_leaves(
    group: str, names: tuple[str, ...], column: pa.Array, physical: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...], pa.DataType, list[Any]]]:
    for field, child in zip(column.type, column.flatten(), strict=True):
        path = (*names, physical.get(field.name, field.name))
        if pa.types.is_struct(field.type):
            yield from _struct_leaves(group, path, child, physical)
        else:
            # Convert to integers, because Python's datetime has no nanoseconds.
            values = child.cast(pa.int64()) if is_nanoseconds(field.type) else child
            yield group, path, field.type, values.to_pylist()


def _physical_names(sql: SqlState) -> dict[str, str]:
    mode = column_mapping_mode(sql.metadata.configuration)
    fields = StructType.from_json(sql.metadata.schema_string).fields
    return {field.name: field.physical_name(mode) for field in fields}


def _at(values: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _same(value: Any, seen: Any, kind: pa.DataType) -> bool:
    """Return whether deltalake parsed a JSON value of the log to the same value."""
    if value is None or value == "" or seen is None:
        return seen is None or (value == "" and seen == "")
    if pa.types.is_boolean(kind) and isinstance(value, str):
        value = value.lower()  # a partition value
    typed = typed_value(value, kind)
    return bool(typed == seen) if typed is not None else str(value) == str(seen)
