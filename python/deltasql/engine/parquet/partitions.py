"""Split rows by partition, and format partition values for the log."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.exceptions import TxnLogSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FEW_ROWS = 64
_MOST_DIGITS = 128


def split_by_partition(
    table: pa.Table, columns: Sequence[str], kept_columns: Sequence[str] = ()
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield the values and the rows of each partition. NaN and null are partition values, too.

    The yielded rows do not have the partition columns, except `kept_columns`, which come last.

    >>> rows = pa.table({"day": ["mon", None, "mon"], "id": [1, 2, 3]})
    >>> [(values, part["id"].to_pylist()) for values, part in split_by_partition(rows, ["day"])]
    [(('mon',), [1, 3]), ((None,), [2])]
    """
    codes = _codes(table, columns)
    names = [*(name for name in table.column_names if name not in columns), *kept_columns]
    if not table.num_rows:
        return
    if codes is None:
        yield tuple(_texts(table[name].slice(0, 1))[0] for name in columns), table.select(names)
        return
    order = pc.sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    kept = table.select(names)
    rows = kept if len(runs.run_ends) == 1 else kept.take(order)
    ends = runs.run_ends.to_pylist()
    firsts = order.take(pa.array([0, *ends[:-1]], pa.int64()))
    values = [_texts(table[name].take(firsts)) for name in columns]
    start = 0
    for number, end in enumerate(ends):
        yield tuple(each[number] for each in values), rows.slice(start, end - start)
        start = end


def partition_text(value: Any) -> str | None:
    """Return a partition value as a string for the log."""
    if type(value) is str and value:
        return value
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            zone = "Z" if value.tzinfo else ""
            separator = "T" if zone else " "
            plain = value.replace(tzinfo=None)
            return plain.isoformat(sep=separator, timespec="microseconds") + zone
        case Decimal():
            return format(value, "f")
        case float() if value != value:
            return "NaN"
        case bytes():
            return _binary_text(value)
        case _:
            return str(value)


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return values as strings for the log.

    As in deltalake, a 32-bit float has only its own digits, not those of the nearest double.
    """
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return _nanosecond_texts(column)
    if not pa.types.is_floating(column.type):
        return [partition_text(value) for value in column.to_pylist()]
    return [_float_text(text) for text in column.cast(pa.string()).to_pylist()]


def _nanosecond_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return timestamps with nine fractional digits, like deltalake."""
    has_zone = column.type.tz is not None
    texts: list[str | None] = column.cast(pa.timestamp("ns")).cast(pa.string()).to_pylist()
    if not has_zone:
        return texts
    return [None if text is None else f"{text.replace(' ', 'T')}Z" for text in texts]


def _float_text(text: str | None) -> str | None:
    if text is None or text.endswith("inf"):
        return text
    if text == "nan":
        return "NaN"
    digits = format(Decimal(text), "f").removesuffix(".0")
    # Write a number with too many digits with an exponent: folder names have a maximum length.
    return digits if len(digits) <= _MOST_DIGITS else text


def _codes(table: pa.Table, columns: Sequence[str]) -> pa.Array | None:
    """Return a partition number for each row; None if all rows are in one partition.

    Values are compared by their dictionary codes, because NaN is not equal to itself.
    """
    codes: Any = None
    for name in columns:
        if table.num_rows <= _FEW_ROWS and _is_one(table[name]):
            continue
        encoded = _encoded(table[name].combine_chunks())
        if len(encoded.dictionary) < 2:
            continue
        indices = encoded.indices.cast(pa.int64())
        if codes is None:
            codes = indices
            continue
        size = pa.scalar(len(encoded.dictionary), pa.int64())
        # Renumber after each column, because the product of the dictionary sizes could overflow.
        joined = pc.add(pc.multiply(codes, size), indices).dictionary_encode()
        codes = joined.indices.cast(pa.int64())
    return codes


def _is_one(column: pa.ChunkedArray) -> bool:
    """Return whether all values are known to be the same; faster than Arrow for a few values."""
    # Compare only strings and integers in Python: other types have different values that are equal
    # in Python, such as 0.0 and -0.0, or the decimals 1.0 and 1.00.
    is_plain = pa.types.is_string(column.type) or pa.types.is_integer(column.type)
    return is_plain and len(set(column.to_pylist())) == 1


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encode values, including null. An empty string counts as null, as in Delta."""
    encoded = values.dictionary_encode(null_encoding="encode")
    kind = values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)
    if not is_text or len(encoded.dictionary) < 2:
        return encoded
    if not pc.any(pc.equal(pc.binary_length(encoded.dictionary), 0)).as_py():
        return encoded
    is_empty = pc.equal(pc.binary_length(values), 0)
    without = pc.if_else(is_empty, pa.scalar(None, kind), values)
    return without.dictionary_encode(null_encoding="encode")


def _binary_text(value: bytes) -> str | None:
    """Return a binary value as a string; Delta stores partition values as UTF-8 strings."""
    try:
        return value.decode() or None
    except UnicodeDecodeError as error:
        raise TxnLogSchemaError(
            f"{value!r} cannot be a partition value: it is not UTF-8",
            help="Partition by a string column, such as the bytes in hexadecimal.",
        ) from error
