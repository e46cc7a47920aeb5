"""Columns of a row group with rows dropped, or with new values, encoded again."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from deltasql.engine.memory import give_back_memory
from deltasql.engine.splice import Chunk, Footer
from deltasql.engine.words import NewWords, as_words, in_use, kept_as_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.engine.revisable import Revisable
    from deltasql.engine.row_changes import GroupChanges


_POOL = pa.system_memory_pool()
_BATCH_ROWS = 32 * 1024
_PAGE_BYTES = 64 * 1024  # the encoder holds several pages at once
# New values are encoded by one thread at a time, while another reads: the encoder's memory is from
# a pool of Arrow that cannot be chosen, and that takes several times what is encoded, per thread.
_encoding = threading.Lock()


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
    words = kept_as_words(opened, number, [name for names in parts for name in names])
    added = {name: NewWords(changes.values[name]) for name in words if name in changes.values}
    # Not by ParquetFile, which takes a dot in a name for a way into a struct, and which has the
    # memory from a pool that gives hardly anything back.
    reader = ParquetReader(memory_pool=_POOL)
    reader.open(
        pa.memory_map(opened.address), metadata=opened.metadata, read_dictionary=words or None
    )
    try:
        for names in parts:
            places = [place for name in names for place in opened.leaves[name]]
            schema = as_words(pa.schema([opened.schema.field(name) for name in names]), words)
            start, changed = 0, []
            # Little by little, since old and new values are there at once.
            for batch in reader.iter_batches(_BATCH_ROWS, [number], places, use_threads=False):
                found = pa.RecordBatch.from_arrays(batch.select(names).columns, schema=schema)
                changed.append(_changed(found, start, changes, added, kept))
                start += batch.num_rows
                del batch, found
            with _encoding if changes.values else nullcontext():
                table = pa.Table.from_batches(changed, schema)
                chunks |= zip(
                    places, _encoded(table, opened, number, words, arguments), strict=True
                )
                del table, changed
                if changes.values:
                    give_back_memory()
    finally:
        reader.close()
    return RevisedColumns(
        chunks,
        frozenset(
            name
            for names in parts
            for name in names
            if name in changes.values and _has_nan(changes.values[name])
        ),
    )


def _changed(
    batch: pa.RecordBatch,
    start: int,
    changes: GroupChanges,
    words: Mapping[str, NewWords],
    kept: pa.Array | None,
) -> pa.RecordBatch:
    """Return rows, of which `start` is the first one's place in the row group, as they become."""
    changed = batch
    first, end = np.searchsorted(changes.changed, (start, start + batch.num_rows))
    if first < end:
        places = changes.changed[first:end] - start
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in words:
                mask = _mask(len(column), places)
                columns.append(words[name].replaced(column, mask, first, end))
            elif name in changes.values:
                new = changes.values[name].slice(first, end - first)
                columns.append(_replaced(column, places, new))
            else:
                columns.append(column)
        changed = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    if kept is None:
        return changed
    return pc.filter(changed, kept.slice(start, batch.num_rows), memory_pool=_POOL)


def _replaced(old: pa.Array, places: np.ndarray, values: pa.Array) -> pa.Array:
    if not pa.types.is_nested(old.type):
        return pc.replace_with_mask(old, _mask(len(old), places), values, memory_pool=_POOL)
    order = np.arange(len(old))
    order[places] = len(old) + np.arange(len(values))
    return pa.concat_arrays([old, values]).take(pa.array(order))


def _mask(length: int, places: np.ndarray) -> pa.Array:
    mask = np.zeros(length, bool)
    mask[places] = True
    return pa.array(mask)


def _encoded(
    table: pa.Table,
    opened: Revisable,
    number: int,
    words: Sequence[str],
    arguments: Mapping[str, Any],
) -> list[Chunk]:
    before = opened.metadata.row_group(number)
    leaves = [before.column(place) for name in table.column_names for place in opened.leaves[name]]
    # What had a dictionary is likely to be worth one again.
    dictionaries = [leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page]
    bounds = {}
    for place, name in enumerate(table.column_names):
        if name in words:
            column, bounds[name] = in_use(table.column(place))
            table = table.set_column(place, table.schema.field(place), column)
    measured = [leaf.path_in_schema for leaf in leaves if leaf.path_in_schema not in bounds]
    sink = pa.BufferOutputStream(_POOL)
    with pq.ParquetWriter(
        sink,
        table.schema,
        store_schema=False,
        memory_pool=_POOL,
        **{
            "data_page_size": _PAGE_BYTES,
            **arguments,
            "use_dictionary": dictionaries or False,
            "write_statistics": measured or False,
        },
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    (group,) = Footer(pa.BufferReader(sink.getvalue())).groups
    return [
        chunk.with_bounds(bounds[leaf.path_in_schema]) if leaf.path_in_schema in bounds else chunk
        for chunk, leaf in zip(group.chunks, leaves, strict=True)
    ]


def _has_nan(values: Any) -> bool:
    if pa.types.is_floating(values.type):
        return bool(pc.any(pc.is_nan(values)).as_py())
    if pa.types.is_struct(values.type):
        return any(_has_nan(member) for member in values.flatten())
    return False
