"""Live files as Arrow tables and file lists, with the same schema from every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from deltasql import _core

if TYPE_CHECKING:
    from deltasql.store.dialect import Row
    from deltasql.store.store import Store

Columns = Literal["files_all", "files_brief", "files_to_read"]
_BRIEF = {
    "file_id": "int64",
    "path": "string",
    "partition_id": "int64",
    "size": "int64",
    "modification_time": "int64",
    "num_records": "int64",
    "added_version": "int64",
}
_TO_READ = {
    "file_id": "int64",
    "path": "string",
    "partition_id": "int64",
    "size": "int64",
    "modification_time": "int64",
    "deletion_vector": "string",
}
# The statements return '' for a NULL text, since SQLite columns get their types from the values.
_FULL = {
    "file_id": "int64",
    "path": "string",
    "partition_id": "int64",
    "size": "int64",
    "modification_time": "int64",
    "data_change": "bool",
    "stats": "string",
    "num_records": "int64",
    "tags": "string",
    "deletion_vector": "string",
    "base_row_id": "int64",
    "default_row_commit_version": "int64",
    "clustering_provider": "string",
    "extra": "string",
    "added_version": "int64",
}
COLUMNS = {"files_all": _FULL, "files_brief": _BRIEF, "files_to_read": _TO_READ}
_TYPES = {"int64": pa.int64(), "string": pa.string(), "bool": pa.bool_()}
SCHEMAS = {
    statement: pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    for statement, columns in COLUMNS.items()
}


def read_files(
    store: Store,
    columns: Columns,
    *,
    table_id: int,
    version: int,
    first_file_id: int,
    next_file_id: int,
) -> pa.Table:
    """Read the files of a version with ids in a range: a few as rows, many as Arrow."""
    params = {
        "table_id": table_id,
        "version": version,
        "first_file_id": first_file_id,
        "next_file_id": next_file_id,
    }
    if next_file_id - first_file_id < store.dialect.bulk_files:
        return to_arrow(from_rows(store.query(columns, **params), columns))
    return from_arrow(store.arrow(columns, **params), columns)


def from_arrow(table: pa.Table, statement: str) -> pa.Table:
    """Cast the result of a bulk read to the common schema."""
    schema = SCHEMAS[statement]
    return table if table.schema.equals(schema) else table.cast(schema)


def from_rows(rows: list[Row], statement: str) -> _core.FileList:
    """Return rows of a statement as a list of files."""
    return _core.FileList.from_rows(rows, list(COLUMNS[statement].items()))


def to_arrow(files: _core.FileList) -> pa.Table:
    """Return a list of files as Arrow."""
    return pa.RecordBatchReader.from_stream(files).read_all()
