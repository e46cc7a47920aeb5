"""Values of SQL expressions: formats, encodings, string and list positions, decimals."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.parity.lakes import Lake, column

_ROW = pa.table(
    {
        "id": pa.array([7], pa.int64()),
        "s": ["n1"],
        "d": pa.array([date(2024, 1, 2)]),
        "t": pa.array([datetime(2024, 1, 2, 3, 4, 5, 120_000, UTC)], pa.timestamp("us", "UTC")),
        "n": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
        "l": [[4, 5]],
        "b": [b"\x0a"],
    }
)


@pytest.mark.parametrize(
    ("name", "expression", "made"),
    [
        ("s", "to_char(d, '%Y-%m')", "2024-01"),
        ("s", "to_char(t, '%H:%M')", "03:04"),
        ("s", "date_format(d, '%d/%m/%Y')", "02/01/2024"),
        ("d", "to_date('05/06/2024', '%m/%d/%Y')", date(2024, 5, 6)),
        ("d", "to_date('2024-05-06')", date(2024, 5, 6)),
        ("s", "cast(t as varchar)", "2024-01-02T03:04:05.120Z"),
        ("s", "lower(cast(t as varchar))", "2024-01-02t03:04:05.120z"),
        ("s", "encode('abcd', 'base64')", "YWJjZA"),
        ("s", "encode(b, 'hex')", "0a"),
        ("b", "decode('YWJjZA', 'base64')", b"abcd"),
        ("b", "decode('0b', 'hex')", b"\x0b"),
        ("s", "substr(s, -1)", "n1"),
        ("s", "substr(s, -1, 3)", "n"),
        ("s", "substr(s, 2)", "1"),
        ("id", "l[-1]", 5),
        ("id", "l[-3]", None),
        ("id", "l[1]", 4),
        ("n", "n * 1.1", Decimal("1.38")),
        ("n", "n * n", Decimal("1.56")),
        ("n", "-n * n + 1", Decimal("-0.56")),
    ],
)
def test_expression_values_equal_those_of_deltalake(
    lake: Lake, name: str, expression: str, made: Any
) -> None:
    table = lake.make("t", _ROW)
    table.update({name: expression})
    assert column(table, name) == [made]


@pytest.mark.parametrize(
    "predicate",
    ["to_char(d, '%Y') = '2024'", "cast(t as varchar) = '2024-01-02T03:04:05.120Z'"],
)
def test_expression_values_in_predicates_equal_those_of_deltalake(
    lake: Lake, predicate: str
) -> None:
    table = lake.make("t", _ROW)
    assert table.delete(predicate)["num_deleted_rows"] == 1


def test_invalid_date_string_raises(lake: Lake) -> None:
    table = lake.make("t", _ROW)
    with pytest.raises(Exception, match=r"(?i)parser error|conversion error"):
        table.update({"d": "to_date(s)"})
    assert column(table, "d") == [date(2024, 1, 2)]
