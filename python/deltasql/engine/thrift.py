"""Thrift's compact protocol, in which Parquet keeps its footers: read and write any structure.

Nothing of a footer has to be known: what is read and not changed is written as it was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I16, I32, I64)
_DEEPEST = 64

Struct: TypeAlias = "dict[int, tuple[int, Any]]"
"""The type and the value of each field, by its number, in the order of the numbers."""


@dataclass(frozen=True, slots=True)
class ThriftList:
    """Values of one type."""

    kind: int
    items: list[Any]


def read_struct(data: bytes) -> Struct:
    """Read a structure; what comes after it is ignored.

    >>> read_struct(write_struct({1: (I32, -7), 4: (LIST, ThriftList(BINARY, [b"a"]))}))
    {1: (5, -7), 4: (9, ThriftList(kind=8, items=[b'a']))}
    """
    try:
        found, _ = _read_struct(data, 0, 0)
    except (IndexError, struct.error) as error:
        raise ValueError("the structure ends before its end") from error
    return found


def write_struct(value: Struct) -> bytes:
    """Write a structure."""
    out = bytearray()
    _write_struct(out, value)
    return bytes(out)


def _read_struct(data: bytes, start: int, depth: int) -> tuple[Struct, int]:
    if depth > _DEEPEST:
        raise ValueError("the structure is too deep")
    found: Struct = {}
    at, number = start, 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return found, at
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _read_integer(data, at)
        if kind <= FALSE:
            found[number] = (TRUE, kind == TRUE)
        else:
            value, at = _read(data, at, kind, depth)
            found[number] = (kind, value)


def _read(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind == BINARY:
        length, at = _read_unsigned(data, at)
        if at + length > len(data):
            raise IndexError
        return data[at : at + length], at + length
    if kind == STRUCT:
        return _read_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _read_list(data, at, depth + 1)
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind <= I8:
        return data[at], at + 1
    raise ValueError(f"no type of Parquet's footers: {kind}")


def _read_list(data: bytes, start: int, depth: int) -> tuple[ThriftList, int]:
    head, at = data[start], start + 1
    kind, length = head & 15, head >> 4
    if length == 15:
        length, at = _read_unsigned(data, at)
    items = []
    for _ in range(length):
        item, at = _read(data, at, kind, depth)
        items.append(item)
    return ThriftList(kind, items), at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    value, after = _read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), after


def _write_struct(out: bytearray, value: Struct) -> None:
    last = 0
    for number, (kind, member) in value.items():
        shown = kind if kind != TRUE or member else FALSE
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | shown)
        else:
            out.append(shown)
            _write_integer(out, number)
        last = number
        if kind != TRUE:
            _write(out, kind, member)
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        length = len(value.items)
        out.append(min(length, 15) << 4 | value.kind)
        if length >= 15:
            _write_unsigned(out, length)
        for item in value.items:
            _write(out, value.kind, item)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    else:
        out.append(value)


def _write_unsigned(out: bytearray, value: int) -> None:
    rest = value
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def _write_integer(out: bytearray, value: int) -> None:
    _write_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)
