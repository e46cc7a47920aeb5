"""Parquet files put together from encoded columns: what stays as it was is copied, not decoded.

A footer says where the bytes of each column of a row group are. A column can move to another
file of the same schema with no change to its bytes: only its place in the footer is another.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engine.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    ThriftList,
    read_struct,
    write_struct,
)
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.storage import Sink

_MAGIC = b"PAR1"
_TAIL = 8
_COPIED_BYTES = 4 * 1024 * 1024  # at a time

# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk and ColumnMetaData.
_VERSION, _SCHEMA, _ROWS, _GROUPS, _CREATED_BY, _ORDERS, _ENCRYPTION = 1, 2, 3, 4, 6, 7, 8
_NAME, _CHILDREN = 4, 5
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_STORED = 1, 2, 3, 5, 6
_CHUNK_FILE, _CHUNK_OFFSET, _CHUNK_META, _CHUNK_ENCRYPTION = 1, 2, 3, 8
_CODEC, _VALUES, _VALUES_BYTES, _STORED_BYTES = 4, 5, 6, 7
_DATA, _INDEX, _DICTIONARY, _STATISTICS, _PAGES = 9, 10, 11, 12, 13
_NULLS, _MAXIMUM, _MINIMUM, _IS_MAXIMUM, _IS_MINIMUM = 3, 5, 6, 7, 8
# Fields of PageEncodingStats, its page type of a dictionary, and how Parquet tells of numbers of
# words: the first value is that of old files.
_PAGE, _ENCODING = 1, 2
_WORDS_PAGE = 2
_NUMBERS = (2, 8)
_BLOOM_PLACES = (14, 15)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a footer tells of the values of a column; no bounds where they are not known."""

    nulls: int
    minimum: bytes | None
    maximum: bytes | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The encoded values of one column in one row group, and where they are."""

    source: Any
    """A file of Arrow's that is open for reading."""
    metadata: Struct

    @property
    def start(self) -> int:
        places = [self.metadata[key][1] for key in (_DATA, _DICTIONARY) if key in self.metadata]
        # Some writers say 0 when there is no dictionary.
        return int(min((place for place in places if place > 0), default=0))

    @property
    def length(self) -> int:
        return int(self.metadata[_STORED_BYTES][1])

    @property
    def size(self) -> int:
        """Bytes of its values before compression."""
        return int(self.metadata[_VALUES_BYTES][1])

    @property
    def codec(self) -> int:
        """The number that Parquet has for the compression."""
        return int(self.metadata[_CODEC][1])

    @property
    def tells_bounds(self) -> bool:
        """Whether the number of nulls is known, and the least and the greatest value."""
        found = self.metadata[_STATISTICS][1] if _STATISTICS in self.metadata else {}
        if _NULLS not in found:
            return False
        is_empty = found[_NULLS][1] == self.metadata[_VALUES][1]
        return is_empty or (_MINIMUM in found and _MAXIMUM in found)

    @property
    def is_words(self) -> bool:
        """Whether all values are numbers of the words of a dictionary; not if nothing says so."""
        pages = self.metadata[_PAGES][1].items if _PAGES in self.metadata else []
        encodings = [each[_ENCODING][1] for each in pages if each[_PAGE][1] != _WORDS_PAGE]
        return bool(encodings) and all(encoding in _NUMBERS for encoding in encodings)

    def with_bounds(self, bounds: Bounds) -> Chunk:
        """Return it with these statistics."""
        found: Struct = {_NULLS: (I64, bounds.nulls)}
        if bounds.minimum is not None and bounds.maximum is not None:
            found[_MAXIMUM], found[_MINIMUM] = (BINARY, bounds.maximum), (BINARY, bounds.minimum)
            found[_IS_MAXIMUM] = found[_IS_MINIMUM] = (TRUE, True)
        return Chunk(self.source, {**self.metadata, _STATISTICS: (STRUCT, found)})


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The columns of some rows."""

    rows: int
    size: int
    """Bytes of its values before compression."""
    chunks: list[Chunk]


class Footer:
    """What the end of a Parquet file says of it."""

    def __init__(self, source: Any) -> None:
        """Read the footer of an open file of Arrow's; ValueError when it is not a plain one."""
        size = source.size()
        tail = bytes(_read(source, size - _TAIL, _TAIL)) if size > _TAIL + len(_MAGIC) else b""
        if tail[4:] != _MAGIC:
            raise ValueError("not a plain Parquet file")
        (length,) = struct.unpack("<I", tail[:4])
        if length > size - _TAIL - len(_MAGIC):
            raise ValueError("not a plain Parquet file")
        self._start = size - _TAIL - length
        self._found = read_struct(bytes(_read(source, self._start, length)))
        self.groups = [self._group(source, each) for each in self._found[_GROUPS][1].items]

    @property
    def schema(self) -> list[Struct]:
        """The elements of the schema, parents before their members; the first is the root."""
        return list(self._found[_SCHEMA][1].items)

    @property
    def is_plain(self) -> bool:
        """Whether nothing in it is encrypted or elsewhere."""
        if _ENCRYPTION in self._found:
            return False
        return not any(
            _CHUNK_ENCRYPTION in chunk or _CHUNK_FILE in chunk or _CHUNK_META not in chunk
            for group in self._found[_GROUPS][1].items
            for chunk in group[_COLUMNS][1].items
        )

    @property
    def is_whole(self) -> bool:
        """Whether all columns are where a file can have them; for a plain one."""
        return all(
            len(_MAGIC) <= chunk.start <= chunk.start + chunk.length <= self._start
            for group in self.groups
            for chunk in group.chunks
        )

    def columns(self) -> dict[str, tuple[list[Struct], range]]:
        """Return the elements and the places of the leaves of each column, by name."""
        elements = self.schema
        found = {}
        at, leaf = 1, 0
        while at < len(elements):
            end, leaves = _subtree(elements, at)
            name = elements[at][_NAME][1].decode()
            found[name] = (elements[at:end], range(leaf, leaf + leaves))
            at, leaf = end, leaf + leaves
        return found

    def written(self, groups: list[Struct], rows: int) -> bytes:
        """Return the end of a file like this one with other row groups."""
        kept = {key: self._found[key] for key in (_VERSION, _SCHEMA)}
        kept[_ROWS] = (I64, rows)
        kept[_GROUPS] = (LIST, ThriftList(STRUCT, groups))
        for key in (_CREATED_BY, _ORDERS):
            if key in self._found:
                kept[key] = self._found[key]
        data = write_struct(kept)
        return data + struct.pack("<I", len(data)) + _MAGIC

    def _group(self, source: Any, group: Struct) -> RowGroup:
        chunks = [
            Chunk(source, chunk[_CHUNK_META][1] if _CHUNK_META in chunk else {})
            for chunk in group[_COLUMNS][1].items
        ]
        return RowGroup(int(group[_GROUP_ROWS][1]), int(group[_GROUP_BYTES][1]), chunks)


class Splicer:
    """Puts row groups one after the other into a new file, with the schema of another."""

    def __init__(self, sink: Sink, footer: Footer) -> None:
        self._sink, self._footer = sink, footer
        self._sink.write(_MAGIC)
        self._at = len(_MAGIC)
        self._groups: list[Struct] = []
        self._rows = 0

    def add(self, rows: int, chunks: Sequence[Chunk]) -> None:
        """Append a row group of encoded columns, in the order of the schema."""
        start = self._at
        moved = []
        for chunk in chunks:
            moved.append(_moved(chunk, self._at - chunk.start))
            for part in _bytes_of(chunk):
                self._sink.write(part)
            self._at += chunk.length
        self._groups.append(
            {
                _COLUMNS: (LIST, ThriftList(STRUCT, moved)),
                _GROUP_BYTES: (I64, sum(each.size for each in chunks)),
                _GROUP_ROWS: (I64, rows),
                _GROUP_OFFSET: (I64, start),
                _GROUP_STORED: (I64, self._at - start),
            }
        )
        self._rows += rows

    def finish(self) -> tuple[int, pq.FileMetaData]:
        """End the file; return its size and its footer."""
        if self._sink.tell() != self._at:
            raise _damaged(f"{self._sink.tell()} bytes were written in place of {self._at}")
        end = self._footer.written(self._groups, self._rows)
        self._sink.write(end)
        return self._at + len(end), pq.read_metadata(pa.BufferReader(_MAGIC + end))


def _subtree(elements: list[Struct], at: int) -> tuple[int, int]:
    """Return where a column ends, and how many leaves it has."""
    members = elements[at][_CHILDREN][1] if _CHILDREN in elements[at] else 0
    if not members:
        return at + 1, 1
    end, leaves = at + 1, 0
    for _ in range(members):
        end, below = _subtree(elements, end)
        leaves += below
    return end, leaves


def _moved(chunk: Chunk, by: int) -> Struct:
    # Bloom filters and page indexes tell places of their own, and are left behind.
    metadata = {key: value for key, value in chunk.metadata.items() if key not in _BLOOM_PLACES}
    for key in (_DATA, _INDEX, _DICTIONARY):
        if key in metadata and metadata[key][1] > 0:
            metadata[key] = (I64, metadata[key][1] + by)
    return {_CHUNK_OFFSET: (I64, 0), _CHUNK_META: (STRUCT, metadata)}


def _bytes_of(chunk: Chunk) -> Iterator[pa.Buffer]:
    start, end = chunk.start, chunk.start + chunk.length
    for at in range(start, end, _COPIED_BYTES):
        yield _read(chunk.source, at, min(_COPIED_BYTES, end - at))


def _read(source: Any, at: int, length: int) -> pa.Buffer:
    source.seek(at)
    found = source.read_buffer(length)
    if len(found) != length:
        raise _damaged(f"it has {len(found)} bytes in place of {length} at {at}")
    return found


def _damaged(what: str) -> TxnLogEngineError:
    return TxnLogEngineError(
        f"a file was not copied as it is: {what}",
        help="Nothing was committed. Something changes or cuts data files: `deltasql verify` "
        "tells which.",
    )
