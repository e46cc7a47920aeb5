"""Statistics and partition values in typed Arrow columns, as in `stats_parsed` of a checkpoint.

The log has statistics as JSON and partition values as strings. This module converts in both
directions.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltasql.model.partition_values import nanoseconds
from deltasql.model.schema.schema import (
    StructType,
    column_mapping_mode,
    decimal_type,
    has_order,
    indexed_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import DataType

# INT96 timestamps are read in this unit, which is the precision of statistics. They are in UTC.
INT96_UNIT = "ms"
# Python's JSON encoder does not support decimals. They are written as strings with this mark, and
# afterwards the mark and the quotes are removed.
_MARK = uuid.uuid4().hex
_DECIMAL = re.compile(rf'"{_MARK}([^"]+)"')
_PRIMITIVES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_nanos": pa.timestamp("ns", "UTC"),
    "timestamp_nanos_ntz": pa.timestamp("ns"),
}


def stats_type(metadata: Metadata) -> pa.StructType:
    """Return the type of `stats_parsed`; bounds have the table's types and physical names."""
    schema = StructType.from_json(metadata.schema_string)
    leaves = indexed_columns(schema, metadata.partition_columns, metadata.configuration)
    bounds = {
        leaf.physical_path: arrow_type
        for leaf in leaves
        if has_order(leaf.type) and (arrow_type := primitive_type(leaf.type)) is not None
    }
    fields = [("numRecords", pa.int64())]
    if bounds:  # Parquet has no empty structs
        fields += [("minValues", nested_struct(bounds)), ("maxValues", nested_struct(bounds))]
    if leaves:
        nulls = {leaf.physical_path: pa.int64() for leaf in leaves}
        fields.append(("nullCount", nested_struct(nulls)))
    return pa.struct([*fields, ("tightBounds", pa.bool_())])


def partition_type(metadata: Metadata) -> pa.StructType | None:
    """Return the type of `partitionValues_parsed`; None if it would have no columns."""
    schema = StructType.from_json(metadata.schema_string)
    mode = column_mapping_mode(metadata.configuration)
    fields = []
    for name in metadata.partition_columns:
        column = schema.find(name)
        arrow_type = None if column is None else primitive_type(column.type)
        if column is not None and arrow_type is not None:
            fields.append((column.physical_name(mode), arrow_type))
    return pa.struct(fields) if fields else None


def primitive_type(data_type: DataType) -> pa.DataType | None:
    """Return the Arrow type of a primitive Delta type; None for other types.

    >>> primitive_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    decimal = decimal_type(data_type)
    if decimal is not None:
        return pa.decimal128(*decimal)
    return _PRIMITIVES.get(data_type) if isinstance(data_type, str) else None


def nested_struct(leaves: Mapping[tuple[str, ...], pa.DataType]) -> pa.StructType:
    """Build nested structs from the paths and types of their leaves."""
    members: dict[str, pa.DataType | dict[tuple[str, ...], pa.DataType]] = {}
    for (first, *rest), data_type in leaves.items():
        if rest:
            inner = members.setdefault(first, {})
            inner[tuple(rest)] = data_type
        else:
            members[first] = data_type
    return pa.struct(
        [
            (name, nested_struct(each) if isinstance(each, dict) else each)
            for name, each in members.items()
        ]
    )


class StatsParser:
    """Parses the JSON in `stats` into the struct `stats_parsed`.

    >>> parser = StatsParser(pa.struct([("numRecords", pa.int64())]))
    >>> parser.parse(pa.array(['{"numRecords":3}', None, "no json"])).to_pylist()
    [{'numRecords': 3}, None, None]
    """

    def __init__(self, data_type: pa.StructType) -> None:
        self.type = data_type
        self._options = pj.ParseOptions(
            # Arrow's JSON reader does not parse dates, so read them as strings and cast them.
            explicit_schema=pa.schema(_dates_as_text(data_type).fields),
            unexpected_field_behavior="ignore",
        )

    def parse(self, texts: pa.Array) -> pa.Array:
        """Return one struct per JSON string. A value that does not fit its type becomes null."""
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), self.type)
        parsed = self._parse_at_once(texts)
        return self._parse_each(texts) if parsed is None else parsed

    def _parse_at_once(self, texts: pa.Array) -> pa.Array | None:
        """Parse all strings as lines of one document; return None if a value does not fit."""
        lines = pa.ListArray.from_arrays([0, len(texts)], pc.fill_null(texts, "{}"))
        document = pc.binary_join(lines, "\n")[0].as_buffer()
        try:
            table = pj.read_json(
                pa.BufferReader(document),
                read_options=pj.ReadOptions(block_size=document.size + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(texts):
                return None
            columns = [
                table[field.name].combine_chunks().cast(field.type) for field in self.type.fields
            ]
        except pa.ArrowInvalid:
            return None
        return pa.StructArray.from_arrays(
            columns, fields=list(self.type.fields), mask=texts.is_null()
        )

    def _parse_each(self, texts: pa.Array) -> pa.Array:
        return pa.array([self._parse_one(text) for text in texts.to_pylist()], self.type)

    def _parse_one(self, text: str | None) -> dict[str, Any] | None:
        if text is None:
            return None
        try:
            body = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError):
            return None
        typed = typed_value(body, self.type)
        return typed if isinstance(typed, dict) else None


def typed_value(value: Any, data_type: pa.DataType) -> Any:
    """Convert a JSON value or a partition value to a type; return None if this is impossible.

    >>> typed_value("2024-02-30", pa.date32()), typed_value("7", pa.int8())
    (None, 7)
    """
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        if not isinstance(value, dict):
            return None
        return {f.name: typed_value(value.get(f.name), f.type) for f in data_type.fields}
    try:
        converted = _converted(value, data_type)
        pa.scalar(converted, data_type)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return None
    return converted


def _converted(value: Any, data_type: pa.DataType) -> Any:
    types = pa.types
    if types.is_boolean(data_type):
        return value if isinstance(value, bool) else _boolean(value)
    if isinstance(value, bool):
        raise TypeError("a boolean is neither a number nor a string")
    if types.is_integer(data_type):
        return _to_int(value)
    if types.is_floating(data_type):
        # Round the double from JSON to the column's type: the values of a 32-bit column are
        # rounded, too, and 1.1 as a double differs from 1.1 in 32 bits.
        return pa.scalar(float(value), data_type).as_py()
    if types.is_decimal(data_type):
        return Decimal(str(value))
    if types.is_date(data_type):
        return date.fromisoformat(value)
    if is_nanoseconds(data_type):
        return nanoseconds(value, has_zone=data_type.tz is not None)
    if types.is_timestamp(data_type):
        timestamp = datetime.fromisoformat(value)
        if data_type.tz is None:
            return timestamp.replace(tzinfo=None)
        return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value.encode() if types.is_binary(data_type) else value


def is_nanoseconds(data_type: pa.DataType) -> bool:
    """Return whether a type is a timestamp with nanoseconds."""
    return bool(pa.types.is_timestamp(data_type) and data_type.unit == "ns")


def _dates_as_text(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([f.with_type(_dates_as_text(f.type)) for f in data_type.fields])
    return pa.string() if pa.types.is_date(data_type) else data_type


def _boolean(value: Any) -> bool:
    if value not in ("true", "false"):
        raise ValueError("not a boolean")
    return bool(value == "true")


def _to_int(value: Any) -> int:
    number = int(value)
    if isinstance(value, Decimal) and number != value:
        raise ValueError("not a whole number")
    return number


def stats_texts(column: pa.StructArray) -> pa.Array:
    """Return each row of `stats_parsed` as JSON, without null bounds.

    >>> row = {"numRecords": 2, "minValues": {"id": 1, "day": date(2024, 1, 1), "x": None}}
    >>> stats_texts(pa.array([row, None])).to_pylist()
    ['{"numRecords":2,"minValues":{"id":1,"day":"2024-01-01"}}', None]
    >>> stats_texts(pa.array([{"maxValues": {"x": Decimal("1234567890123456789.01")}}]))[0].as_py()
    '{"maxValues":{"x":1234567890123456789.01}}'
    """
    return pa.array(list(_texts(column)), pa.string())


def _texts(column: pa.StructArray) -> Iterator[str | None]:
    for row in column.cast(_zoned(column.type)).to_pylist():
        if row is None:
            yield None
            continue
        values = _json_values(row)
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, default=_text)
        yield _DECIMAL.sub(r"\1", text)


def _zoned(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_zoned(member.type)) for member in kind])
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.string()  # Python's datetime has no nanoseconds
    return pa.timestamp(INT96_UNIT, "UTC") if kind == pa.timestamp(INT96_UNIT) else kind


def _json_values(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _json_values(each)
        for name, each in value.items()
        if each is not None and not isinstance(each, bytes) and not _is_not_finite(each)
    }


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}"
    return str(value)
