"""Parse Delta statistics and partition values, which are JSON and text, into typed columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltasql.model.partition_values import nanoseconds


class StatsParser:
    """Parses `stats` texts into the struct `stats_parsed`.

    >>> parser = StatsParser(pa.struct([("numRecords", pa.int64())]))
    >>> parser.parse(pa.array(['{"numRecords":3}', None, "no json"])).to_pylist()
    [{'numRecords': 3}, None, None]
    """

    def __init__(self, data_type: pa.StructType) -> None:
        self.type = data_type
        self._options = pj.ParseOptions(
            # Arrow's JSON reader does not parse dates: they are read as text and cast.
            explicit_schema=pa.schema(_dates_as_text(data_type).fields),
            unexpected_field_behavior="ignore",
        )

    def parse(self, texts: pa.Array) -> pa.Array:
        """Return one struct per text; a value that does not fit its type becomes null."""
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), self.type)
        parsed = self._parse_at_once(texts)
        return self._parse_each(texts) if parsed is None else parsed

    def _parse_at_once(self, texts: pa.Array) -> pa.Array | None:
        """Parse all texts as lines of one document; return None if one of them does not fit."""
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
    """Convert a JSON value or a partition value to a type; return None if it does not fit.

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
        raise TypeError("a boolean is neither a number nor a text")
    if types.is_integer(data_type):
        return _whole(value)
    if types.is_floating(data_type):
        return float(value)
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
        raise TypeError("not a text")
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


def _whole(value: Any) -> int:
    number = int(value)
    if isinstance(value, Decimal) and number != value:
        raise ValueError("not a whole number")
    return number
