"""Values of every type are written as deltalake writes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import TxnLogError
from tests.operations.deltalake_comparison import Twins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

NOON = datetime(2024, 5, 1, 12, 0, 0, 123456)
ROWS = pa.table({"id": [1, 2], "name": ["x", None]})


@pytest.fixture
def twins(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Twins]:
    place = str(tmp_path / "ours")
    uri = replace(sqlite_uri.with_table("sales"), location=place).to_string()
    yield Twins(str(tmp_path / "stock"), uri, place)
    close_all()


def one(values: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"a": pa.array(values, kind)})


NEW = {
    "nulls": one([None, None], pa.int32()),
    "always null": one([None], pa.null()),
    "lists of nothing": one([[None], []]),
    "bytes": one([b"\x00", None]),
    "booleans": one([True, None]),
    "floats": one([1.5, float("nan"), float("inf"), None]),
    "small": one([1], pa.int8()),
    "unsigned": one([2], pa.uint32()),
    "naive times": one([NOON]),
    "nanoseconds": one([1_700_000_000_123_456_789], pa.timestamp("ns")),
    "milliseconds": one([1_700_000_000_123], pa.timestamp("ms")),
    "times in Paris": one([NOON], pa.timestamp("us", "Europe/Paris")),
    "times with an offset": one([NOON], pa.timestamp("ns", "+02:00")),
    "times in UTC": one([NOON.replace(tzinfo=UTC)]),
    "dates": one([date(2024, 2, 29), None]),
    "dates by milliseconds": one([86_400_000], pa.date64()),
    "decimals": one([Decimal("1.23"), None], pa.decimal128(38, 10)),
    "dictionary": pa.table({"a": pa.array(["x", None, "x"]).dictionary_encode()}),
    "large text": one(["x"], pa.large_string()),
    "text views": one(["x", "a text that is longer than twelve"], pa.string_view()),
    "byte views": one([b"x"], pa.binary_view()),
    "fixed bytes": one([b"ab"], pa.binary(2)),
    "fixed lists": one([[1, 2], None], pa.list_(pa.int64(), 2)),
    "large lists": one([[1], None], pa.large_list(pa.int32())),
    "list views": one([[1], [2, 3]], pa.list_view(pa.int64())),
    "maps": one([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "structs": one([{"x": 1, "y": {"z": [NOON]}}, None]),
    "lists of structs": one([[{"x": 1}, None], None]),
}


@pytest.mark.parametrize("name", NEW)
def test_new_table_has_the_types_of_the_data(twins: Twins, name: str) -> None:
    assert twins.write(NEW[name]) is None
    assert twins.write(NEW[name], mode="append") is None
    twins.assert_alike()


@pytest.mark.parametrize(
    "data",
    [
        one([1], pa.time64("us")),
        one([1], pa.duration("us")),
        one([Decimal("1.2")], pa.decimal256(60, 2)),
        one([1.5], pa.float16()),
        one([200], pa.uint8()),
        one([{}], pa.struct([])),
        pa.table({}),
    ],
    ids=str,
)
def test_types_without_a_delta_type_are_rejected(twins: Twins, data: pa.Table) -> None:
    assert isinstance(twins.write(data), TxnLogError)


CASTS = {
    "wider": (one([1], pa.int32()), one([2], pa.int64())),
    "narrower that fits": (one([1], pa.int64()), one([2], pa.int8())),
    "narrower that does not": (one([300], pa.int64()), one([2], pa.int8())),
    "unsigned too large": (one([2**63], pa.uint64()), one([2])),
    "fractions are cut off": (one([-3.7, 3.7]), one([2])),
    "no number": (one([float("nan")]), one([2])),
    "text to number": (one(["7"]), one([2])),
    "text that is none": (one(["seven"]), one([2])),
    "number to text": (one([7]), one(["x"])),
    "truth to number": (one([True]), one([2])),
    "text to truth": (one(["true"]), one([False])),
    "truth to text": (one([True]), one(["x"])),
    "nothing": (one([None], pa.null()), one(["x"])),
    "bytes to text": (one([b"q"]), one(["x"])),
    "bytes that are no text": (one([b"\xff"]), one(["x"])),
    "text to bytes": (one(["q"]), one([b"x"])),
    "text to date": (one(["2024-05-01"]), one([date(2024, 1, 1)])),
    "text to time": (one(["2024-05-01T00:00:00"]), one([NOON], pa.timestamp("us", "UTC"))),
    "date to time": (one([date(2024, 1, 1)]), one([NOON])),
    "zone to none": (one([NOON], pa.timestamp("us", "Europe/Paris")), one([NOON])),
    "none to zone": (one([NOON]), one([NOON], pa.timestamp("us", "UTC"))),
    "nanoseconds": (one([1_700_000_000_123_456_789], pa.timestamp("ns")), one([NOON])),
    "number to decimal": (one([5]), one([Decimal("1.23")], pa.decimal128(5, 2))),
    "fraction to decimal": (one([5.557]), one([Decimal("1.23")], pa.decimal128(5, 2))),
    "fewer digits": (
        one([Decimal("1.239")], pa.decimal128(10, 3)),
        one([Decimal("1.23")], pa.decimal128(10, 2)),
    ),
    "more digits": (
        one([Decimal("1.2")], pa.decimal128(4, 1)),
        one([Decimal("1.23")], pa.decimal128(10, 2)),
    ),
    "decimal to fraction": (one([Decimal("1.23")]), one([1.0])),
    "struct in another order": (one([{"y": 1, "x": 2}]), one([{"x": 1, "y": 5}])),
    "struct with casts": (one([{"x": "7"}]), one([{"x": 1}])),
    "struct with more": (one([{"x": 1, "y": 2}]), one([{"x": 1}])),
    "struct with less": (one([{"x": 1}]), one([{"x": 1, "y": 2}])),
    "list of structs with more": (one([[{"x": 1, "y": 2}]]), one([[{"x": 1}]])),
    "struct to text": (one([{"x": 1}]), one(["x"])),
    "one to many": (one([1]), one([[1]])),
    "dictionary": (pa.table({"a": pa.array(["q"]).dictionary_encode()}), one(["x"])),
}


@pytest.mark.parametrize("name", CASTS)
def test_values_are_cast_to_the_types_of_the_table(twins: Twins, name: str) -> None:
    given, present = CASTS[name]
    assert twins.write(present) is None
    twins.write(given, mode="append")
    twins.assert_alike()


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"name": ["q"], "id": [3]}),
        pa.table({"id": [3]}),
        pa.table({"id": [3], "name": ["q"], "more": [1]}),
        pa.table({"id": [3], "nam": ["q"]}),
        pa.table({"ID": [3], "name": ["q"]}),
    ],
    ids=lambda table: ",".join(table.column_names),
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_columns_are_matched_by_name(twins: Twins, data: pa.Table, mode: str) -> None:
    assert twins.write(ROWS) is None
    twins.write(data, mode=mode)
    twins.assert_alike()


INPUTS: dict[str, Callable[[], object]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "batches": lambda: ROWS.to_batches(max_chunksize=1),
    "reader": lambda: ROWS.to_reader(max_chunksize=1),
    "pandas": lambda: pandas.DataFrame({"id": [1, 2], "name": ["x", None]}),
    "polars": lambda: polars.DataFrame({"id": [1, 2], "name": ["x", None]}),
    "DuckDB": lambda: duckdb.sql("SELECT 1::BIGINT AS id, 'x' AS name"),
    "dataset": lambda: ds.dataset(ROWS).scanner().to_reader(),
}


@pytest.mark.parametrize("name", INPUTS)
def test_any_arrow_input_can_be_written(twins: Twins, name: str) -> None:
    assert twins.write(INPUTS[name]) is None
    assert twins.write(INPUTS[name], mode="append") is None
    twins.assert_alike()


def test_stream_is_read_once_in_bounded_memory(twins: Twins) -> None:
    batch = pa.record_batch({"id": pa.array(range(100_000), pa.int64())})
    most, count = 0, 60

    def stream() -> Any:
        nonlocal most
        for _ in range(count):
            # A separate copy, so that unreleased batches count as allocated memory.
            yield pa.record_batch({"id": pa.array(batch["id"].to_numpy().copy())})
            most = max(most, pa.total_allocated_bytes())

    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(batch.schema, stream())
    deltasql.write_deltalake(twins.uri, reader, target_file_size=4 * 1024 * 1024)
    assert deltasql.DeltaTable(twins.uri).count() == count * batch.num_rows
    assert most - before < 300 * 1024 * 1024
