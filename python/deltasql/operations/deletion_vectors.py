"""Deletion vectors of DELETE, UPDATE and MERGE: which files get one, and writing them.

With the property `delta.enableDeletionVectors`, rows that an operation deletes or replaces are
marked as deleted in a vector, and the data file stays. If more than half of the rows of a file
would be deleted, the file is rewritten, as it is without the property.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql._core import with_wide_bounds
from deltasql.model.deletion_vector import inline_vector, vector_file, vectors_in_file
from deltasql.model.properties import TableProperties
from deltasql.model.protocol import reader_features
from deltasql.operations.rewrite import deleted_row_counts, files_at
from deltasql.operations.table_stage import add_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from deltasql._core import RowSet
    from deltasql.model.actions import AddFile, DeletionVector
    from deltasql.operations.table_stage import TableStage

_MOST_DELETED = 0.5
"""A file is rewritten if a larger share of its rows would be deleted."""
_INLINE_BYTES = 256
"""Vectors up to this size are stored in the log. Larger vectors are stored in files."""
_BYTES_PER_FILE = 2 * 1024 * 1024
"""A new file of vectors is started at this size, because readers read such files completely."""


def uses_vectors(stage: TableStage) -> bool:
    """Return whether operations may write deletion vectors to this table."""
    allowed = TableProperties(stage.configuration).deletion_vectors
    return allowed and "deletionVectors" in reader_features(stage.protocol)


def can_mark_any_file(stage: TableStage) -> bool:
    """Return whether rows of every file can be marked as deleted.

    For this, the log must have the row counts of all files.
    """
    if not uses_vectors(stage) or stage.snapshot is None:
        return False
    return stage.snapshot.totals().num_records is not None


def files_to_mark(stage: TableStage, files: pa.Table, changed: Sequence[int]) -> list[int]:
    """Return the indexes of the listed files that get a vector; the others are rewritten.

    `changed` has the number of rows of each file that are deleted or replaced. A file without
    statistics is rewritten, because the log must have the row count of a file with a vector.
    """
    if not uses_vectors(stage):
        return []
    counts = zip(files["num_records"].to_pylist(), deleted_row_counts(files), strict=True)
    return [
        index
        for index, (rows, deleted) in enumerate(counts)
        if rows is not None and deleted + changed[index] <= rows * _MOST_DELETED
    ]


def mark_deleted(
    stage: TableStage, files: pa.Table, deleted: Mapping[int, RowSet]
) -> dict[str, int]:
    """Stage deletion vectors that delete rows of listed files, and return metrics.

    `deleted` has the rows by the index of the file. Rows that are already deleted stay deleted.
    """
    indexes = sorted(deleted)
    marked = files_at(files, indexes)
    live = stage.live(marked)
    earlier = {id(file): rows for file, rows in live.row_sets(live.files)}
    sets = [
        deleted[index].union(earlier[id(file)]) if id(file) in earlier else deleted[index]
        for index, file in zip(indexes, live.files, strict=True)
    ]
    vectors = _written(stage, sets)
    adds = [
        _with_vector(add_file(row), vector)
        for row, vector in zip(marked.to_pylist(), vectors, strict=True)
    ]
    stage.remove(marked)
    stage.add(adds)
    return {
        "num_deletion_vectors_added": len(adds),
        "num_deletion_vectors_removed": len(earlier),
    }


def _with_vector(file: AddFile, vector: DeletionVector) -> AddFile:
    # The bounds of the remaining rows may be narrower than those of the file.
    stats = None if file.stats is None else with_wide_bounds(file.stats)
    return replace(file, stats=stats, deletion_vector=vector, data_change=True)


def _written(stage: TableStage, sets: Sequence[RowSet]) -> list[DeletionVector]:
    """Return a vector for each set of rows; large vectors are written to files."""
    sizes = [len(rows.encode()) for rows in sets]
    vectors = {
        index: inline_vector(sets[index])
        for index, size in enumerate(sizes)
        if size <= _INLINE_BYTES
    }
    large = [index for index in range(len(sets)) if index not in vectors]
    for indexes in _per_file(large, sizes):
        stored = _write_file(stage, [sets[index] for index in indexes])
        vectors.update(zip(indexes, stored, strict=True))
    return [vectors[index] for index in range(len(sets))]


def _per_file(indexes: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Divide vectors into groups, one for each file."""
    group: list[int] = []
    filled = 0
    for index in indexes:
        group.append(index)
        filled += sizes[index]
        if filled >= _BYTES_PER_FILE:
            yield group
            group, filled = [], 0
    if group:
        yield group


def _write_file(stage: TableStage, sets: Sequence[RowSet]) -> list[DeletionVector]:
    """Write a file of vectors. It is flushed to disk before this function returns."""
    vectors, data = vectors_in_file(uuid.uuid4(), sets)
    name = vector_file(vectors[0])
    assert name is not None
    stage.plan().intend([name])
    stage.storage.put(name, data)
    return vectors
