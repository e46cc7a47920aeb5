"""The Arrow form of live files, the same from every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.store.dialect import Row

_TEXT = pa.string()
_INT = pa.int64()

BRIEF = pa.schema(
    [
        ("file_id", _INT),
        ("path", _TEXT),
        ("partition_id", _INT),
        ("size", _INT),
        ("modification_time", _INT),
        ("num_records", _INT),
        ("added_version", _INT),
    ]
)
# NULL travels as '' and -1: SQLite's Arrow driver guesses a column's type from its first rows.
FULL = pa.schema(
    [
        ("file_id", _INT),
        ("path", _TEXT),
        ("partition_id", _INT),
        ("size", _INT),
        ("modification_time", _INT),
        ("data_change", pa.bool_()),
        ("stats", _TEXT),
        ("num_records", _INT),
        ("tags", _TEXT),
        ("deletion_vector", _TEXT),
        ("base_row_id", _INT),
        ("default_row_commit_version", _INT),
        ("clustering_provider", _TEXT),
        ("extra", _TEXT),
        ("added_version", _INT),
    ]
)
SCHEMAS = {"files_all": FULL, "files_brief": BRIEF}


def from_arrow(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give a bulk read the common schema."""
    return table if table.schema.equals(schema) else table.cast(schema)


def from_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Build the Arrow form of a few rows, which are cheaper to fetch as rows."""
    if not rows:
        return schema.empty_table()
    columns: list[Any] = list(zip(*rows, strict=True))
    position = schema.get_field_index("data_change")
    if position >= 0:
        columns[position] = [bool(value) for value in columns[position]]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def with_partitions(files: pa.Table, partitions: Mapping[int, str]) -> pa.Table:
    """Put the partition values (canonical JSON) in the place of their ids."""
    ids = files["partition_id"].to_pylist()
    position = files.schema.get_field_index("partition_id")
    values = pa.array([partitions[number] for number in ids], _TEXT)
    return files.set_column(position, "partition", values)
