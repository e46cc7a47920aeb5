"""Deletion vectors: decode the deleted rows of a file from the log or from a `.bin` file.

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

from deltasql.exceptions import TxnLogProtocolError

if TYPE_CHECKING:
    from deltasql.model.actions import DeletionVector

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}
_UUID_LENGTH = 20
_MAGIC = 1681511377
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_NO_OFFSETS_BELOW = 4  # a bitmap with runs and fewer containers has no offsets
_LARGEST_ARRAY = 4096
_BITMAP_BYTES = 8192


def vector_file(vector: DeletionVector) -> str | None:
    """Return the path of a vector's file, relative or an absolute URI; None for an inline vector.

    >>> from deltasql.model.actions import DeletionVector
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
    words = struct.unpack(">4I", identity.bytes)
    return "".join(_ALPHABET[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def deleted_rows(vector: DeletionVector, data: bytes | None = None) -> array[int]:
    """Return the positions of the deleted rows in ascending order.

    `data` is the content of the vector's file (`vector_file`); it is not needed for inline vectors.

    >>> from deltasql.model.actions import DeletionVector
    >>> inline = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    >>> deleted_rows(DeletionVector("i", inline, 44, 6)).tolist()
    [3, 4, 7, 11, 18, 29]
    """
    if vector.storage_type == "i":
        # Decode the whole string. As in other readers, bytes after the bitmap are ignored.
        bitmap = _from_base85(vector.path_or_inline_dv)
    elif data is None:
        raise ValueError("the content of the vector's file is missing")
    else:
        bitmap = _bitmap_in(data, vector)
    try:
        rows = _bitmap_array(bitmap)
    except struct.error as error:
        raise _broken("it ends too early") from error
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


def _bitmap_array(data: bytes) -> array[int]:
    magic, count = struct.unpack_from("<IQ", data)
    if magic != _MAGIC:
        raise _broken(f"its format {magic} is not known")
    rows = array("q")
    at = 12
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        at = _read_bitmap(data, at + 4, high << 32, rows)
    return rows


def _read_bitmap(data: bytes, start: int, base: int, rows: array[int]) -> int:
    """Append the values of one Roaring bitmap to `rows`, and return the offset after the bitmap."""
    (cookie,) = struct.unpack_from("<I", data, start)
    at = start + 4
    run_flags = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        run_flags = data[at : at + (count + 7) // 8]
        at += len(run_flags)
    elif cookie == _WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise _broken(f"its bitmap starts with the unknown number {cookie}")
    headers = struct.unpack_from(f"<{2 * count}H", data, at)
    at += 4 * count
    if not run_flags or count >= _NO_OFFSETS_BELOW:
        at += 4 * count
    for number in range(count):
        first = base + (headers[2 * number] << 16)
        is_run = bool(run_flags) and run_flags[number // 8] >> (number % 8) & 1
        at = _read_container(data, at, first, headers[2 * number + 1] + 1, is_run, rows)
    return at


def _read_container(
    data: bytes, at: int, first: int, size: int, is_run: int, rows: array[int]
) -> int:
    if is_run:
        runs = int.from_bytes(data[at : at + 2], "little")
        pairs = struct.unpack_from(f"<{2 * runs}H", data, at + 2)
        for start, more in zip(pairs[::2], pairs[1::2], strict=True):
            rows.extend(range(first + start, first + start + more + 1))
        return at + 2 + 4 * runs
    if size <= _LARGEST_ARRAY:
        rows.extend(first + value for value in struct.unpack_from(f"<{size}H", data, at))
        return at + 2 * size
    for number, word in enumerate(struct.unpack_from(f"<{_BITMAP_BYTES // 8}Q", data, at)):
        left = word
        while left:
            lowest = left & -left
            rows.append(first + 64 * number + lowest.bit_length() - 1)
            left ^= lowest
    return at + _BITMAP_BYTES


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
