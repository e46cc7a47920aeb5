"""Deletion vectors: decode and encode the deleted rows of a file, in the log or in a `.bin` file.

A vector is a set of row positions, encoded as 32-bit Roaring bitmaps in the portable format, one
bitmap for each value of the upper 32 bits. A vector is stored inline in the log or in a file. The
file can contain several vectors, each preceded by its size and followed by a checksum.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from array import array
from typing import TYPE_CHECKING

from deltasql._core import RowSet
from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.actions import DeletionVector

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}
_UUID_LENGTH = 20
_FORMAT = b"\x01"  # the first byte of a file with vectors


def vector_file(vector: DeletionVector) -> str | None:
    """Return the path of a vector's file, relative or an absolute URI; None for an inline vector.

    >>> vector_file(DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset=4))
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    stored = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return None
    if vector.storage_type == "p":
        return stored
    if vector.storage_type != "u" or len(stored) < _UUID_LENGTH:
        raise _broken(f"storage type {vector.storage_type!r} is not known")
    prefix, encoded = stored[:-_UUID_LENGTH], stored[-_UUID_LENGTH:]
    name = f"deletion_vector_{uuid.UUID(bytes=_from_base85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def named_vector(identity: uuid.UUID) -> str:
    """Encode the UUID of a vector's file for the log; `vector_file` decodes it.

    >>> named_vector(uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61"))
    '^-aqEH.-t@S}K{vb[*k^'
    """
    return _to_base85(identity.bytes)


def inline_vector(rows: RowSet) -> DeletionVector:
    """Return a vector that is stored in the log."""
    bitmap = rows.encode()
    padded = bitmap + bytes(-len(bitmap) % 4)
    return DeletionVector("i", _to_base85(padded), len(bitmap), len(rows))


def vectors_in_file(
    identity: uuid.UUID, sets: Sequence[RowSet]
) -> tuple[list[DeletionVector], bytes]:
    """Return vectors that are stored in one file, and the content of the file.

    The name of the file is derived from `identity`. For any of the vectors, `vector_file` returns
    the name.
    """
    data, name = bytearray(_FORMAT), named_vector(identity)
    vectors = []
    for rows in sets:
        bitmap, offset = rows.encode(), len(data)
        data += struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
        vectors.append(DeletionVector("u", name, len(bitmap), len(rows), offset=offset))
    return vectors, bytes(data)


def deleted_rows(vector: DeletionVector, data: bytes | None = None) -> array[int]:
    """Return the positions of the deleted rows in ascending order.

    `data` is the content of the vector's file (`vector_file`); it is not needed for inline vectors.

    >>> inline = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    >>> deleted_rows(DeletionVector("i", inline, 44, 6)).tolist()
    [3, 4, 7, 11, 18, 29]
    """
    return array("q", row_set(vector, data).positions())


def row_set(vector: DeletionVector, data: bytes | None = None) -> RowSet:
    """Return the deleted rows as a set; the arguments are those of `deleted_rows`."""
    if vector.storage_type == "i":
        # Decode the whole string. As in other readers, bytes after the bitmap are ignored.
        bitmap = _from_base85(vector.path_or_inline_dv)
    elif data is None:
        raise ValueError("the content of the vector's file is missing")
    else:
        bitmap = _bitmap_in(data, vector)
    try:
        rows = RowSet.decode(bitmap)
    except ValueError as error:
        raise _broken(str(error)) from error
    if len(rows) != vector.cardinality:
        raise _broken(f"it has {len(rows)} rows, but the log says {vector.cardinality}")
    return rows


def _bitmap_in(data: bytes, vector: DeletionVector) -> bytes:
    """Return the bytes of one vector in a file; raise if the size or the checksum is wrong."""
    start = vector.offset or 0
    try:
        (size,) = struct.unpack_from(">i", data, start)
        bitmap = data[start + 4 : start + 4 + size]
        (checksum,) = struct.unpack_from(">I", data, start + 4 + size)
    except struct.error as error:
        raise _broken("its file ends too early") from error
    if size != vector.size_in_bytes:
        raise _broken(f"it has {size} bytes, but the log says {vector.size_in_bytes}")
    if zlib.crc32(bitmap) != checksum:
        raise _broken("its checksum does not match")
    return bitmap


def _to_base85(data: bytes) -> str:
    """Encode with Z85; the length of the data is a multiple of 4."""
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_ALPHABET[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _from_base85(text: str) -> bytes:
    """Decode Z85, whose alphabet differs from the alphabets of Python's `base64` module."""
    if len(text) % 5:
        raise _broken("its encoded text is truncated")
    words = []
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            digit = _DIGITS.get(character)
            if digit is None:
                raise _broken(f"its encoded text contains {character!r}")
            word = word * 85 + digit
        if word >> 32:
            raise _broken("its encoded text is not valid Z85")
        words.append(word)
    return struct.pack(f">{len(words)}I", *words)


def _broken(reason: str) -> TxnLogProtocolError:
    return TxnLogProtocolError(
        f"a deletion vector cannot be read: {reason}",
        help="The file or the log is damaged. Restore it from a copy, or restore the table to an "
        "older version.",
    )
