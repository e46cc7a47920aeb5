"""Columns of a row group with rows dropped, or with new values, encoded again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from deltasql.engine.memory import give_back_memory
from deltasql.engine.splice import Chunk, Footer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.engine.revisable import Revisable
    from deltasql.engine.row_changes import GroupChanges


_POOL = pa.system_memory_pool()


@dataclass(frozen=True, slots=True)
class RevisedColumns:
    """Columns of a row group that are other than before."""

    chunks: dict[int, Chunk]
    """By the place of the leaf among all leaves."""
    unordered: frozenset[str]
    """Columns that got values which are not numbers."""


def revised_columns(
    opened: Revisable,
    number: int,
    parts: Sequence[Sequence[str]],
    changes: GroupChanges,
    arguments: Mapping[str, Any],
) -> RevisedColumns:
    """Read columns of a row group, change and encode them; only one part is in memory."""
    kept: pa.Array | None = None
    if len(changes.dropped):
        mask = np.ones(opened.footer.groups[number].rows, bool)
        mask[changes.dropped] = False
        kept = pa.array(mask)
    chunks: dict[int, Chunk] = {}
    # Not by ParquetFile, which takes a dot in a name for a way into a struct, and which has the
    # memory from a pool that gives hardly anything back.
    reader = ParquetReader(memory_pool=_POOL)
    reader.open(pa.memory_map(opened.address), metadata=opened.metadata)
    try:
        for names in parts:
            places = [place for name in names for place in opened.leaves[name]]
            found = reader.read_row_group(number, column_indices=places, use_threads=False)
            table = _changed(found.select(names).replace_schema_metadata(None), changes, kept)
            del found
            chunks |= zip(places, _encoded(table, opened, number, arguments), strict=True)
            del table
    finally:
        reader.close()
    if changes.values:  # old and new ones were there at once, and would be kept for later
        give_back_memory()
    return RevisedColumns(
        chunks,
        frozenset(
            name
            for names in parts
            for name in names
            if name in changes.values and _has_nan(changes.values[name])
        ),
    )


def _changed(table: pa.Table, changes: GroupChanges, kept: pa.Array | None) -> pa.Table:
    changed = table
    if len(changes.changed):
        columns = [
            _replaced(table.column(name), changes.changed, changes.values[name])
            if name in changes.values
            else table.column(name)
            for name in table.column_names
        ]
        changed = pa.Table.from_arrays(columns, schema=table.schema)
    return changed if kept is None else pc.filter(changed, kept, memory_pool=_POOL)


def _replaced(column: pa.ChunkedArray, places: np.ndarray, values: pa.Array) -> pa.ChunkedArray:
    old = column.combine_chunks()
    if isinstance(old, pa.ChunkedArray):  # too much text for one array
        old = pa.concat_arrays(old.chunks)
    if not pa.types.is_nested(old.type):
        mask = np.zeros(len(old), bool)
        mask[places] = True
        marked = pa.array(mask)
        return pa.chunked_array([pc.replace_with_mask(old, marked, values, memory_pool=_POOL)])
    order = np.arange(len(old))
    order[places] = len(old) + np.arange(len(values))
    return pa.chunked_array([pa.concat_arrays([old, values]).take(pa.array(order))])


def _encoded(
    table: pa.Table, opened: Revisable, number: int, arguments: Mapping[str, Any]
) -> list[Chunk]:
    # What had a dictionary is likely to be worth one again.
    before = opened.metadata.row_group(number)
    leaves = [before.column(place) for name in table.column_names for place in opened.leaves[name]]
    dictionaries = [leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page]
    sink = pa.BufferOutputStream(_POOL)
    with pq.ParquetWriter(
        sink,
        table.schema,
        store_schema=False,
        memory_pool=_POOL,
        **{**arguments, "use_dictionary": dictionaries or False},
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    (group,) = Footer(pa.BufferReader(sink.getvalue())).groups
    return group.chunks


def _has_nan(values: Any) -> bool:
    if pa.types.is_floating(values.type):
        return bool(pc.any(pc.is_nan(values)).as_py())
    if pa.types.is_struct(values.type):
        return any(_has_nan(member) for member in values.flatten())
    return False
