"""Deletion vectors in every encoding that writers may choose."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql import DeletionVector
from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.deletion_vector import deleted_rows, vector_file

MAGIC = 1681511377


def container(lows: list[int], form: str) -> tuple[bytes, bool]:
    """Encode one container of a Roaring bitmap; a bitmap container has at least 4,097 values."""
    if form == "runs":
        runs: list[list[int]] = []
        for low in lows:
            if runs and low == runs[-1][0] + runs[-1][1] + 1:
                runs[-1][1] += 1
            else:
                runs.append([low, 0])
        flat = [number for run in runs for number in run]
        return struct.pack(f"<H{len(flat)}H", len(runs), *flat), True
    if len(lows) > 4096:
        bits = sum(1 << low for low in lows)
        return bits.to_bytes(8192, "little"), False
    return struct.pack(f"<{len(lows)}H", *lows), False


def bitmap(values: list[int], form: str) -> bytes:
    keys = sorted({value >> 16 for value in values})
    parts = [container([v & 0xFFFF for v in values if v >> 16 == key], form) for key in keys]
    sizes = [sum(v >> 16 == key for v in values) for key in keys]
    flags = sum(is_run << number for number, (_, is_run) in enumerate(parts))
    if form == "runs":
        head = struct.pack("<I", 12347 | (len(keys) - 1) << 16)
        head += flags.to_bytes((len(keys) + 7) // 8, "little")
    else:
        head = struct.pack("<II", 12346, len(keys))
    for key, size in zip(keys, sizes, strict=True):
        head += struct.pack("<HH", key, size - 1)
    if form != "runs" or len(keys) >= 4:
        head += b"\xff" * 4 * len(keys)  # the offsets, which a sequential reader does not use
    return head + b"".join(data for data, _ in parts)


def encoded(rows: list[int], form: str) -> bytes:
    highs = sorted({row >> 32 for row in rows})
    body = struct.pack("<IQ", MAGIC, len(highs))
    for high in highs:
        lows = [row & 0xFFFFFFFF for row in rows if row >> 32 == high]
        body += struct.pack("<I", high) + bitmap(lows, form)
    return body


def stored(rows: list[int], form: str, *, before: bytes = b"\x01") -> tuple[DeletionVector, bytes]:
    body = encoded(rows, form)
    vector = DeletionVector("p", "file:///x.bin", len(body), len(rows), offset=len(before))
    checksum = struct.pack(">I", zlib.crc32(body))
    return vector, before + struct.pack(">i", len(body)) + body + checksum + b"another"


ROWS = st.lists(
    st.one_of(st.integers(0, 300_000), st.integers(2**32 - 5, 2**32 + 70_000)), unique=True
).map(sorted)


@given(ROWS, st.sampled_from(["arrays", "runs"]))
def test_any_set_of_rows_is_decoded(rows: list[int], form: str) -> None:
    vector, data = stored(rows, form)
    assert deleted_rows(vector, data).tolist() == rows


@pytest.mark.parametrize("form", ["arrays", "runs"])
def test_dense_sets_of_rows_are_decoded(form: str) -> None:
    rows = [*range(1, 20_000, 3), *range(65_536, 200_000), 2**33]
    vector, data = stored(rows, form)
    assert deleted_rows(vector, data).tolist() == rows


def test_vector_is_read_at_its_offset() -> None:
    vector, data = stored([1, 5], "arrays", before=b"\x01" + b"some other vector")
    assert deleted_rows(vector, data).tolist() == [1, 5]


def test_vector_file_name_depends_on_the_storage_type() -> None:
    text = "^-aqEH.-t@S}K{vb[*k^"
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_file(DeletionVector("u", text, 1, 1, offset=1)) == name
    assert vector_file(DeletionVector("u", f"a{text}", 1, 1, offset=1)) == f"a/{name}"
    assert vector_file(DeletionVector("p", "s3://b/x.bin", 1, 1)) == "s3://b/x.bin"
    assert vector_file(DeletionVector("i", text, 1, 1)) is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:20], "ends too early"),
        (lambda data: data[:30] + b"\x00\x01" + data[32:], "checksum"),
        (lambda data: data[:1] + b"\x00\x00\x00\x09" + data[5:], "bytes, but the log says"),
    ],
)
def test_damaged_vector_is_detected(damage: object, message: str) -> None:
    vector, data = stored(list(range(0, 40, 2)), "arrays")
    with pytest.raises(TxnLogProtocolError, match=message):
        deleted_rows(vector, damage(data))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (DeletionVector("i", "0000", 4, 1), "truncated"),
        (DeletionVector("i", "0000 ", 4, 1), "contains ' '"),
        (DeletionVector("i", "#####", 4, 1), "not valid Z85"),
        (DeletionVector("i", "000000000000000", 12, 1), "format 0"),
        (DeletionVector("i", "^Bg9^", 4, 1), "ends too early"),
    ],
)
def test_invalid_inline_vector_is_rejected(vector: DeletionVector, message: str) -> None:
    with pytest.raises(TxnLogProtocolError, match=message):
        deleted_rows(vector)


def test_vector_cardinality_must_match_the_log() -> None:
    vector, data = stored([1, 2, 3], "arrays")
    wrong = DeletionVector("p", "x", vector.size_in_bytes, 4, offset=vector.offset)
    with pytest.raises(TxnLogProtocolError, match="has 3 rows, but the log says 4"):
        deleted_rows(wrong, data)


def test_unknown_vector_storage_type_is_rejected() -> None:
    with pytest.raises(TxnLogProtocolError, match="storage type"):
        vector_file(DeletionVector("x", "a" * 20, 1, 1))
