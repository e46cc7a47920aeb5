"""Deletion vectors: write small ones, and read those of other writers."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING
from uuid import UUID

from deltasql import DeletionVector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MAGIC = 1681511377
_NO_RUNS, _WITH_RUNS = 12346, 12347
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def inline_vector(rows: Iterable[int]) -> DeletionVector:
    """Return an inline deletion vector.

    >>> sorted(deleted_rows(inline_vector([0, 7]), read=None))
    [0, 7]
    """
    deleted = sorted(rows)
    body = _bitmap(deleted)
    return DeletionVector("i", _encode(body), len(body), len(deleted))


def file_vector(rows: Iterable[int], uri: str) -> tuple[DeletionVector, bytes]:
    """Return a deletion vector in a file with an absolute URI, and the content of that file."""
    deleted = sorted(rows)
    body = _bitmap(deleted)
    content = b"\x01" + struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return DeletionVector("p", uri, len(body), len(deleted), offset=1), content


def deleted_rows(vector: DeletionVector, read: Callable[[str], bytes]) -> set[int]:
    """Return the positions of the deleted rows; `read` returns the content of a file."""
    if vector.storage_type == "i":
        return _positions(_decode(vector.path_or_inline_dv)[: vector.size_in_bytes])
    name = vector.path_or_inline_dv
    if vector.storage_type == "u":
        folder = f"{name[:-20]}/" if len(name) > 20 else ""
        name = f"{folder}deletion_vector_{UUID(bytes=_decode(name[-20:]))}.bin"
    start = (vector.offset or 0) + 4
    return _positions(read(name)[start : start + vector.size_in_bytes])


def _bitmap(deleted: list[int]) -> bytes:
    """Return a roaring bitmap with one container of sorted positions below 65,536."""
    head = struct.pack("<iqi", _MAGIC, 1, 0)
    container = struct.pack(f"<{len(deleted)}H", *deleted)
    return head + struct.pack("<IIHHI", _NO_RUNS, 1, 0, len(deleted) - 1, 16) + container


def _positions(body: bytes) -> set[int]:
    magic, maps = struct.unpack_from("<iq", body)
    assert magic == _MAGIC
    found: set[int] = set()
    place = 12
    for _ in range(maps):
        (high,) = struct.unpack_from("<i", body, place)
        place = _read_map(body, place + 4, high << 32, found)
    return found


def _read_map(body: bytes, place: int, base: int, found: set[int]) -> int:
    (cookie,) = struct.unpack_from("<I", body, place)
    place += 4
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = body[place : place + (count + 7) // 8]
        place += (count + 7) // 8
    else:
        (count,) = struct.unpack_from("<I", body, place)
        runs, place = b"", place + 4
    keys = [struct.unpack_from("<HH", body, place + 4 * number) for number in range(count)]
    place += 4 * count
    if not runs or count >= 4:
        place += 4 * count  # offsets of the containers, which are not needed
    for number, (key, size) in enumerate(keys):
        start = base + (key << 16)
        if runs and runs[number // 8] >> number % 8 & 1:
            (pairs,) = struct.unpack_from("<H", body, place)
            for pair in range(pairs):
                first, more = struct.unpack_from("<HH", body, place + 2 + 4 * pair)
                found.update(range(start + first, start + first + more + 1))
            place += 2 + 4 * pairs
        elif size < 4096:
            found.update(start + low for low in struct.unpack_from(f"<{size + 1}H", body, place))
            place += 2 * (size + 1)
        else:
            bits = int.from_bytes(body[place : place + 8192], "little")
            found.update(start + low for low in range(65536) if bits >> low & 1)
            place += 8192
    return place


def _encode(data: bytes) -> str:
    padded = data + b"\0" * (-len(data) % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", padded):
        text += "".join(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def _decode(text: str) -> bytes:
    data = b""
    for start in range(0, len(text), 5):
        word = 0
        for letter in text[start : start + 5]:
            word = word * 85 + _Z85.index(letter)
        data += struct.pack(">I", word)
    return data
