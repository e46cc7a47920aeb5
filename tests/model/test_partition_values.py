"""Partition values in the formats that writers use."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.schema.schema import ArrayType


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        (None, "string", None),
        ("", "string", None),
        ("a/b c%", "string", "a/b c%"),
        ("-7", "byte", -7),
        ("9223372036854775807", "long", 2**63 - 1),
        ("1.5E-3", "double", 0.0015),
        ("-Infinity", "float", -math.inf),
        ("12.30", "decimal(10,2)", Decimal("12.30")),
        ("true", "boolean", True),
        ("False", "boolean", False),
        ("aé", "binary", "aé".encode()),
        ("0001-01-01", "date", date(1, 1, 1)),
        ("2024-05-01 10:00:00", "timestamp", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01 10:00:00.5", "timestamp", datetime(2024, 5, 1, 10, 0, 0, 500000, UTC)),
        ("2024-05-01T10:00:00.000001Z", "timestamp", datetime(2024, 5, 1, 10, 0, 0, 1, UTC)),
        ("2024-05-01T10:00:00+02:00", "timestamp", datetime(2024, 5, 1, 8, tzinfo=UTC)),
        ("2024-05-01 10:00:00.25", "timestamp_ntz", datetime(2024, 5, 1, 10, 0, 0, 250000)),
    ],
)
def test_partition_values_are_parsed_by_type(text: str | None, data_type: str, value: Any) -> None:
    assert parse_partition_value(text, data_type) == value


def test_nan_partition_value_is_parsed() -> None:
    assert math.isnan(parse_partition_value("NaN", "double"))


@pytest.mark.parametrize(
    ("text", "data_type"),
    [("x", "long"), ("2024-13-01", "date"), ("maybe", "boolean"), ("1,5", "decimal(5,2)")],
)
def test_invalid_partition_value_is_named_in_the_error(text: str, data_type: str) -> None:
    with pytest.raises(TxnLogProtocolError, match="not a partition value"):
        parse_partition_value(text, data_type)


def test_nested_partition_column_is_rejected() -> None:
    with pytest.raises(TxnLogProtocolError, match="array"):
        parse_partition_value("[]", ArrayType("long"))
