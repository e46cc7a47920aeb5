"""Text that a file keeps as numbers of the words of a dictionary: revised by its numbers.

Words are many bytes and few; to decode, to change and to encode the numbers alone takes a third of
the time. Arrow would compute bounds of such a column slowly, so they are found here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.splice import Bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.revisable import Revisable

_LONGEST_BOUND = 4096  # as Arrow has it: what is longer is left out of a footer


def kept_as_words(opened: Revisable, number: int, names: Sequence[str]) -> list[str]:
    """Return the columns that are text, and nothing but numbers of words in a row group."""
    chunks = opened.footer.groups[number].chunks
    return [
        name
        for name in names
        # Arrow would take a dot for a way into a struct.
        if "." not in name
        and _is_text(opened.schema.field(name).type)
        and chunks[opened.leaves[name][0]].is_words
    ]


def as_words(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema that columns have whose words are not put in the place of the numbers."""
    numbered = [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in names else field
        for field in schema
    ]
    return pa.schema(numbered)


class NewWords:
    """New values of a column, as numbers of the words it has and of those that are added."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values
        self._old: pa.Array | None = None
        self._all: pa.Array | None = None
        self._numbers: pa.Array | None = None

    def replaced(self, old: pa.DictionaryArray, mask: pa.Array, start: int, end: int) -> pa.Array:
        """Return a column with the new values from `start` to `end` where the mask is true."""
        # All batches of a row group have the same words.
        if self._old is None or not self._old.equals(old.dictionary):
            self._old = old.dictionary
            found = pc.unique(self._values).drop_null()
            added = found.filter(pc.invert(pc.is_in(found, self._old)))
            self._all = pa.concat_arrays([self._old, added])
            self._numbers = pc.index_in(self._values, self._all)
        assert self._numbers is not None
        new = self._numbers.slice(start, end - start)
        return pa.DictionaryArray.from_arrays(
            pc.replace_with_mask(old.indices, mask, new), self._all
        )


def in_use(column: pa.ChunkedArray) -> tuple[pa.DictionaryArray, Bounds]:
    """Return a column without the words that no row has any more, and its bounds."""
    whole = column.unify_dictionaries().combine_chunks()
    words, numbers = whole.dictionary, whole.indices
    is_used = np.zeros(len(words), bool)
    is_used[numbers.drop_null().to_numpy()] = True
    if not is_used.all():
        places = pa.array(np.cumsum(is_used, dtype=np.int32) - 1, pa.int32())
        words = words.filter(pa.array(is_used))
        whole = pa.DictionaryArray.from_arrays(places.take(numbers), words)
    return whole, _bounds(words, whole.null_count)


def _bounds(words: pa.Array, nulls: int) -> Bounds:
    found = pc.min_max(words.cast(pa.binary())).as_py()
    low, high = found["min"], found["max"]
    if low is None or len(low) > _LONGEST_BOUND or len(high) > _LONGEST_BOUND:
        return Bounds(nulls, None, None)
    return Bounds(nulls, low, high)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
