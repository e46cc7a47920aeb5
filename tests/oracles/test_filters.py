"""Statistics never hide a row: a reader that filters by a value finds the row with it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import deltalake
import polars
import pyarrow as pa
import pytest

from tests.mirror.support import open_mirrored
from tests.oracles.readers import DuckDb
from tests.oracles.writing import create
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

LAST = "\U0010ffff"
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [2**63 - 1, -(2**63), 2**53 + 1]),
    "double": (pa.float64(), [5e-324, 1.7976931348623157e308, 0.1]),
    "decimal": (
        pa.decimal128(19, 3),
        [Decimal("1234567890123456.789"), Decimal("-1234567890123456.789"), Decimal("0.001")],
    ),
    "wide decimal": (
        pa.decimal128(38, 0),
        [Decimal("9" * 38), Decimal("-12345678901234567891"), Decimal(12345678901234567891)],
    ),
    "text": (pa.string(), ["x" * 40, "é" * 40, "a\0b", "z" * 32 + LAST * 2, LAST * 40]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime(2024, 2, 29, 12, 30, 0, 1, UTC),
            datetime(2024, 2, 29, 12, 30, 0, 999, UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ],
    ),
    "timestamp without zone": (pa.timestamp("us"), [datetime(2024, 2, 29, 12, 30, 0, 1)]),
}


@pytest.fixture
def catalog(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    "kind", smoke(list(VALUES), ("long", "double", "text"), "readers of more tables")
)
def test_filter_finds_the_row_of_each_extreme_value(catalog: Catalog, kind: str) -> None:
    arrow_type, values = VALUES[kind]
    table = create(catalog, "t", pa.schema([("id", pa.int64()), ("v", arrow_type)]))
    for number, value in enumerate(values):
        table.append([{"id": number, "v": value}])
    place = table.table.location
    stock, duckdb = deltalake.DeltaTable(place), DuckDb()
    for number, value in enumerate(values):
        assert _stock_ids(stock, value, arrow_type) == [number]
        sql = "SELECT id FROM delta_scan($place) WHERE v = $value"
        assert duckdb.query(sql, place=place, value=value) == [(number,)]
        typed = polars.lit(polars.from_arrow(pa.array([value], arrow_type)).item(0))
        frame = polars.scan_delta(place).filter(polars.col("v") == typed)
        assert frame.collect()["id"].to_list() == [number]


def test_statistics_include_struct_fields(catalog: Catalog) -> None:
    inner = pa.struct([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = create(catalog, "t", pa.schema([("id", pa.int64()), ("s", inner), ("e", inner)]))
    table.append([{"id": 1, "s": {"n": 5, "tags": ["a"]}}, {"id": 2, "s": None}])
    (text,) = table.table.files()["stats"].to_pylist()
    assert json.loads(text) == {
        "numRecords": 2,
        "minValues": {"id": 1, "s": {"n": 5}},
        "maxValues": {"id": 2, "s": {"n": 5}},
        "nullCount": {"id": 0, "s": {"n": 1, "tags": 1}, "e": {"n": 2, "tags": 2}},
    }
    assert deltalake.DeltaTable(table.table.location).count() == 2


def _stock_ids(table: deltalake.DeltaTable, value: Any, kind: pa.DataType) -> list[int]:
    match value:
        case str():
            literal = f"'{value}'"
        case datetime():
            literal = f"timestamp '{value.isoformat()}'"
        case date():
            literal = f"date '{value}'"
        case Decimal():
            literal = f"CAST('{value}' AS DECIMAL({kind.precision}, {kind.scale}))"
        case _:
            literal = repr(value)
    found: list[int] = pa.table(table.scan(predicate=f"v = {literal}"))["id"].to_pylist()
    return found
