"""Variant values in Parquet files, as structs of two binaries: `metadata` and `value`.

A file can also store parts of the values as typed columns ("shredded"). `unshredded` puts these
parts back into the binary, as Parquet's VariantEncoding.md and VariantShredding.md describe it.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_OBJECT = 2
"""The type of an object, in the lowest two bits of its first byte."""
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
"""For each decimal type: its maximum number of digits, its type id, and the bytes of a value."""
Names = list[str]
"""The field names in the metadata of one value, in the order of their ids; they may repeat."""


def unshredded(array: Any, kind: pa.DataType) -> pa.StructArray:
    """Return the variants of a file, shredded or not, as structs of `metadata` and `value`.

    >>> found = unshredded(
    ...     pa.array([{"metadata": b"\\x01\\x00\\x00", "value": None, "typed_value": 7}]),
    ...     pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
    ... )
    >>> found.to_pylist()[0]["value"].hex()
    '180700000000000000'
    """
    parts = {member.name: array.field(number) for number, member in enumerate(array.type)}
    metadata = parts["metadata"].cast(pa.binary())
    if "typed_value" in parts:
        known = _parts(array)["metadata"].to_pylist()
        names = [[] if each is None else _names(each) for each in known]
        values = _encoded(array, names)
        value = pa.array([_NULL if each is None else each for each in values], pa.binary())
    else:
        value = parts["value"].cast(pa.binary())
    fields = [kind.field("metadata"), kind.field("value")]
    return pa.StructArray.from_arrays([metadata, value], fields=fields, mask=array.is_null())


def _encoded(group: Any, names: Sequence[Names]) -> list[bytes | None]:
    """Return the encoded variant of each row of `value` and `typed_value`; None if missing."""
    parts = _parts(group)
    value, typed = parts.get("value"), parts.get("typed_value")
    rest = [None] * len(group) if value is None else value.to_pylist()
    if typed is None:
        return rest
    if pa.types.is_struct(typed.type):
        return _objects(typed, rest, names)
    if pa.types.is_list(typed.type) or pa.types.is_large_list(typed.type):
        return _arrays(typed, rest, names)
    encode, numbers = _primitive(typed)
    return [
        left if each is None else encode(each)
        for each, left in zip(numbers.to_pylist(), rest, strict=True)
    ]


def _parts(array: Any) -> dict[str, Any]:
    """Return the array of each field by its name; a field is null where the struct is null."""
    return dict(zip((member.name for member in array.type), array.flatten(), strict=True))


def _objects(
    typed: Any, rest: Sequence[bytes | None], names: Sequence[Names]
) -> list[bytes | None]:
    """Merge the fields that are stored as columns with those in the binaries `rest`."""
    members = {name: _encoded(group, names) for name, group in _parts(typed).items()}
    found: list[bytes | None] = []
    for row, is_object in enumerate(typed.is_valid().to_pylist()):
        left = rest[row]
        if not is_object:
            found.append(left)
            continue
        if left is not None and left[0] & 3 != _OBJECT:
            raise pa.ArrowInvalid("the `value` of a shredded variant object is not an object")
        fields = {} if left is None else _fields(left, names[row])
        for name, values in members.items():
            value = values[row]
            if value is not None:
                fields[name] = value
        found.append(_object(fields, names[row]))
    return found


def _arrays(typed: Any, rest: Sequence[bytes | None], names: Sequence[Names]) -> list[bytes | None]:
    first, *_ = offsets = typed.offsets.to_pylist()
    ends = [offset - first for offset in offsets]
    values = typed.values.slice(first, ends[-1])
    lengths = [end - start for start, end in pairwise(ends)]
    of_element = [each for each, length in zip(names, lengths, strict=True) for _ in range(length)]
    elements = [_NULL if each is None else each for each in _encoded(values, of_element)]
    return [
        _array(elements[start:end]) if is_array else left
        for is_array, left, (start, end) in zip(
            typed.is_valid().to_pylist(), rest, pairwise(ends), strict=True
        )
    ]


def _primitive(typed: Any) -> tuple[Callable[[Any], bytes], Any]:
    """Return a function that encodes one value, and the array of the values to pass to it."""
    types, kind = pa.types, typed.type
    if types.is_boolean(kind):
        return lambda value: _TRUE if value else _FALSE, typed
    if types.is_string(kind) or types.is_large_string(kind):
        return _text, typed
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: _header(15) + struct.pack("<I", len(value)) + value, typed
    if types.is_fixed_size_binary(kind):
        return lambda value: _header(20) + value, typed
    if types.is_decimal(kind):
        return _decimal(kind), typed
    if isinstance(kind, pa.UuidType):
        return lambda value: _header(20) + value, typed.storage
    number, code = _number(kind)
    values = typed
    if types.is_date(kind):
        values = typed.cast(pa.int32())
    elif types.is_temporal(kind):
        values = typed.cast(pa.int64())
    return lambda value: _header(number) + struct.pack(code, value), values


def _number(kind: pa.DataType) -> tuple[int, str]:
    """Return the type id of a primitive type, and the `struct` format of its values."""
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"):
        first = 18 if kind.unit == "ns" else 12
        return (first if kind.tz else first + 1), "<q"
    known = {
        pa.int8(): (3, "<b"),
        pa.int16(): (4, "<h"),
        pa.int32(): (5, "<i"),
        pa.int64(): (6, "<q"),
        pa.float64(): (7, "<d"),
        pa.float32(): (14, "<f"),
        pa.date32(): (11, "<i"),
        pa.time64("us"): (17, "<q"),
    }
    if kind not in known:
        raise pa.ArrowNotImplementedError(
            f"variants with values of the type {kind} are not supported"
        )
    return known[kind]


def _decimal(kind: Any) -> Callable[[Any], bytes]:
    number, size = next((each, size) for most, each, size in _DECIMALS if kind.precision <= most)

    def encode(value: Any) -> bytes:
        sign, digits, exponent = value.as_tuple()
        whole = int("".join(map(str, digits))) * 10 ** (exponent + kind.scale)
        unscaled = (-whole if sign else whole).to_bytes(size, "little", signed=True)
        encoded: bytes = _header(number) + bytes([kind.scale]) + unscaled
        return encoded

    return encode


def _header(number: int) -> bytes:
    return bytes([number << 2])


def _text(value: str) -> bytes:
    content = value.encode()
    if len(content) < 64:
        return bytes([len(content) << 2 | 1]) + content
    return _header(16) + struct.pack("<I", len(content)) + content


def _array(elements: Sequence[bytes]) -> bytes:
    ends = _ends(elements)
    size = _size(ends[-1])
    is_large = len(elements) > 255
    header = (is_large << 2 | size - 1) << 2 | 3
    count = len(elements).to_bytes(4 if is_large else 1, "little")
    return b"".join([bytes([header]), count, *_integers(ends, size), *elements])


def _object(fields: Mapping[str, bytes], names: Names) -> bytes:
    ids = {name: number for number, name in enumerate(names)}
    if not ids.keys() >= fields.keys():
        raise pa.ArrowInvalid("a shredded variant has a field that its metadata does not name")
    ordered = sorted(fields, key=str.encode)
    numbers, values = [ids[name] for name in ordered], [fields[name] for name in ordered]
    ends = _ends(values)
    size, id_size = _size(ends[-1]), _size(max(numbers, default=0))
    is_large = len(ordered) > 255
    header = (is_large << 4 | id_size - 1 << 2 | size - 1) << 2 | 2
    count = len(ordered).to_bytes(4 if is_large else 1, "little")
    return b"".join(
        [bytes([header]), count, *_integers(numbers, id_size), *_integers(ends, size), *values]
    )


def _ends(values: Sequence[bytes]) -> list[int]:
    found = [0]
    for each in values:
        found.append(found[-1] + len(each))
    return found


def _size(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)


def _integers(numbers: Sequence[int], size: int) -> list[bytes]:
    return [number.to_bytes(size, "little") for number in numbers]


def _fields(value: bytes, names: Names) -> dict[str, bytes]:
    """Return the fields of an object."""
    header = value[0] >> 2
    count_size = 4 if header >> 4 & 1 else 1
    id_size, size = (header >> 2 & 3) + 1, (header & 3) + 1
    count = int.from_bytes(value[1 : 1 + count_size], "little")
    start = 1 + count_size
    numbers = _read(value, start, count, id_size)
    offsets = _read(value, start + count * id_size, count + 1, size)
    content = value[start + count * id_size + (count + 1) * size :]
    # A value ends where the next one starts, but the values may be in another order than the names.
    ends = dict(pairwise(sorted(set(offsets))))
    return {
        names[number]: content[offset : ends[offset]]
        for number, offset in zip(numbers, offsets[:-1], strict=True)
    }


def _names(metadata: bytes) -> Names:
    """Return the field names in the metadata of a value."""
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    offsets = _read(metadata, 1 + size, count + 1, size)
    texts = metadata[1 + size + (count + 1) * size :]
    return [texts[start:end].decode() for start, end in pairwise(offsets)]


def _read(content: bytes, start: int, count: int, size: int) -> list[int]:
    ends = range(start, start + count * size, size)
    return [int.from_bytes(content[each : each + size], "little") for each in ends]
