"""Arrow tables of live files and tombstones: their schemas and their canonical values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import canonical_path
from deltasql.model.actions import DeletionVector, RemoveFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltasql._core import Table

_TEXT, _LONG, _FLAG = pa.string(), pa.int64(), pa.bool_()
# Tags, deletion vectors and extra fields are JSON strings.
FILES = pa.schema(
    [
        ("path", _TEXT),
        ("partition", _TEXT),
        ("size", _LONG),
        ("modification_time", _LONG),
        ("data_change", _FLAG),
        ("stats", _TEXT),
        ("num_records", _LONG),
        ("tags", _TEXT),
        ("deletion_vector", _TEXT),
        ("base_row_id", _LONG),
        ("default_row_commit_version", _LONG),
        ("clustering_provider", _TEXT),
        ("extra", _TEXT),
    ]
)
TOMBSTONES = pa.schema(
    [
        ("path", _TEXT),
        ("partition", _TEXT),
        ("deletion_timestamp", _LONG),
        ("data_change", _FLAG),
        ("extended_file_metadata", _FLAG),
        ("size", _LONG),
        ("stats", _TEXT),
        ("tags", _TEXT),
        ("deletion_vector", _TEXT),
        ("base_row_id", _LONG),
        ("default_row_commit_version", _LONG),
        ("extra", _TEXT),
    ]
)


def replayed_files(table: Table) -> pa.Table:
    """Return the live files of a replayed table."""
    return canonical_files(pa.RecordBatchReader.from_stream(table.files).read_all(), FILES)


def tombstone_table(removes: Iterable[RemoveFile]) -> pa.Table:
    """Return remove actions as a table with the schema TOMBSTONES."""
    rows = [
        {
            "path": each.path,
            "partition": partition_text(each.partition_values or {}),
            "deletion_timestamp": each.deletion_timestamp,
            "data_change": each.data_change,
            "extended_file_metadata": each.extended_file_metadata,
            "size": each.size,
            "stats": each.stats,
            "tags": None if each.tags is None else compact(dict(each.tags)),
            "deletion_vector": None
            if each.deletion_vector is None
            else compact(each.deletion_vector.body()),
            "base_row_id": each.base_row_id,
            "default_row_commit_version": each.default_row_commit_version,
            "extra": compact(dict(each.extra)) if each.extra else None,
        }
        for each in removes
    ]
    return pa.Table.from_pylist(rows, TOMBSTONES)


def canonical_files(files: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert files to a schema, empty strings to null and partition values to canonical JSON."""
    columns = []
    for each in schema:
        if each.name not in files.schema.names:
            columns.append(pa.chunked_array([pa.nulls(files.num_rows, each.type)]))
            continue
        column = files[each.name].cast(each.type)
        if each.name == "partition":
            column = _partitions(column)
        elif each.type == _TEXT:
            column = pc.if_else(pc.equal(column, ""), None, column)
        columns.append(column)
    return pa.table(columns, schema=schema)


def partition_text(values: Mapping[str, str | None]) -> str:
    """Return partition values as canonical JSON, so that equal partitions have equal strings.

    Null values are left out, because a null means the same as a missing value.

    >>> partition_text({"b": "x", "a": None, "A": "1"})
    '{"A":"1","b":"x"}'
    """
    return compact({name: values[name] for name in sorted(values) if values[name] is not None})


def logical_files(files: pa.Table) -> pa.ChunkedArray:
    """Return the key of each logical file: its path and the id of its deletion vector, if any."""
    vectors, paths = files["deletion_vector"], _canonical_paths(files["path"])
    if vectors.null_count == len(vectors):
        return paths
    encoded = vectors.combine_chunks().dictionary_encode()
    ids = [
        "\x00" + DeletionVector.from_body(json.loads(text)).unique_id
        for text in encoded.dictionary.to_pylist()
    ]
    suffixes = pc.fill_null(pa.array(ids, _TEXT).take(encoded.indices), "")
    return pc.binary_join_element_wise(paths, pa.chunked_array([suffixes]), "")


def _canonical_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return paths in canonical form. Only absolute local paths change: they have several forms."""
    whole = paths.combine_chunks()
    is_local = is_local_path(whole)
    if not pc.any(is_local).as_py():
        return paths
    canonical = [canonical_path(path) for path in whole.filter(is_local).to_pylist()]
    return pa.chunked_array([pc.replace_with_mask(whole, is_local, pa.array(canonical, _TEXT))])


def is_local_path(paths: pa.Array) -> pa.Array:
    """Return which paths are absolute paths of the local file system."""
    return pc.match_substring_regex(paths, r"^(?:/|(?i:file):)")


def compact(value: object) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _partitions(column: pa.ChunkedArray) -> pa.ChunkedArray:
    encoded = pc.fill_null(column, "{}").combine_chunks().dictionary_encode()
    texts = [partition_text(json.loads(text)) for text in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(texts, _TEXT).take(encoded.indices)])
