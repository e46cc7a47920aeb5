"""Inputs of `write_deltalake`, and values that are read back unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import arro3.core
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.parity.lakes import Lake, column, rows, sample


@pytest.mark.parametrize(
    "kind", ["table", "batch", "batches", "reader", "arro3", "arro3 reader", "polars", "tuple"]
)
def test_every_arrow_input_is_accepted(lake: Lake, kind: str) -> None:
    data = sample()
    given: Any = {
        "table": lambda: data,
        "batch": lambda: data.to_batches()[0],
        "batches": data.to_batches,
        "reader": data.to_reader,
        "arro3": lambda: arro3.core.Table.from_arrow(data),
        "arro3 reader": lambda: arro3.core.RecordBatchReader.from_arrow(data),
        "polars": lambda: pl.from_arrow(data),
        "tuple": lambda: tuple(data.to_batches()),
    }[kind]()
    table = lake.make("t", given)
    assert rows(table) == data.to_pylist()
    assert table.to_pyarrow_table().schema == data.schema


def test_pandas_data_frame_is_written(lake: Lake) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, float("nan")]})
    table = lake.make("t", frame)
    assert [field.type.type for field in table.schema().fields] == ["long", "string", "double"]
    assert rows(table)[0] == {"a": 1, "b": "x", "c": 1.5}
    assert table.to_pandas()["a"].tolist() == [1, 2]


def test_pandas_index_becomes_a_column(lake: Lake) -> None:
    table = lake.make("t", pd.DataFrame({"a": [1, 2]}, index=[5, 6]))
    assert [field.name for field in table.schema().fields] == ["a", "__index_level_0__"]


def test_pandas_timestamps_are_written(lake: Lake) -> None:
    frame = pd.DataFrame({"ts": pd.to_datetime(["2024-01-02T03:04:05.123456"], utc=True)})
    table = lake.make("t", frame)
    assert table.schema().fields[0].type.type == "timestamp"
    assert column(table, "ts") == [datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)]


def test_duckdb_relation_is_written(lake: Lake) -> None:
    query = "select 1 as a, 'x' as b, [1, 2] as l, {'x': 1} as s, 1.5::decimal(4,2) as d"
    with duckdb.connect() as connection:
        table = lake.make("t", connection.sql(query))
    assert rows(table) == [
        {"a": 1, "b": "x", "l": [1, 2], "s": {"x": 1}, "d": Decimal("1.50")},
    ]


def test_record_batch_reader_is_read_completely(lake: Lake) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 50_000, 1_000):
            yield pa.record_batch({"id": list(range(start, start + 1_000))})

    schema = pa.schema([("id", pa.int64())])
    table = lake.make("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert table.count() == 50_000
    assert column(table, "id")[-1] == 49_999


def test_failing_reader_creates_no_table(lake: Lake) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise RuntimeError("the source broke")

    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(Exception, match="the source broke"):
        lake.write_deltalake(
            lake.uri("t"), pa.RecordBatchReader.from_batches(schema, batches()), mode="append"
        )
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


@pytest.mark.parametrize("given", [5, {"a": [1]}, [{"a": 1}], [1]], ids=str)
def test_invalid_input_is_rejected(lake: Lake, given: Any) -> None:
    with pytest.raises((ValueError, AttributeError, TypeError)):
        lake.write_deltalake(lake.uri("t"), given)
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_invalid_table_address_is_rejected(lake: Lake) -> None:
    with pytest.raises(ValueError, match="table_or_uri must be a str, Path or DeltaTable"):
        lake.write_deltalake(5, sample())


def test_values_of_every_type_are_read_back(lake: Lake) -> None:
    data = pa.table(
        {
            "i8": pa.array([-128, None, 127], pa.int8()),
            "i16": pa.array([-32768, None, 32767], pa.int16()),
            "i32": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
            "i64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
            "f32": pa.array([-1.5, None, float("inf")], pa.float32()),
            "f64": pa.array([-1.5, None, 1e308], pa.float64()),
            "b": [True, None, False],
            "s": ["", None, "grüße 🎉"],
            "bin": [b"", None, b"\x00\xff"],
            "d": [date(1, 1, 1), None, date(9999, 12, 31)],
            "ts": pa.array([-1, None, 1_700_000_000_123_456], pa.timestamp("us", "UTC")),
            "ntz": pa.array([-1, None, 1_700_000_000_123_456], pa.timestamp("us")),
            "dec": pa.array([Decimal("-12345678.90"), None, Decimal("0.01")], pa.decimal128(10, 2)),
            "big": pa.array([Decimal(10**37), None, Decimal(-1)], pa.decimal128(38, 0)),
            "l": pa.array([[1, None], None, []], pa.list_(pa.field("element", pa.int32()))),
            "m": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int32())),
            "st": [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
            "ls": [[{"a": 1}], None, [{"a": None}, None]],
        }
    )
    table = lake.make("t", data)
    assert table.to_pyarrow_table().to_pylist() == data.to_pylist()


def test_timestamps_are_stored_in_microseconds_and_utc(lake: Lake) -> None:
    data = pa.table(
        {
            "ns": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")),
            "zone": pa.array([1_700_000_000_000_000], pa.timestamp("us", "Europe/Berlin")),
            "ms": pa.array([1_700_000_000_123], pa.timestamp("ms")),
            "s": pa.array([1_700_000_000], pa.timestamp("s", "UTC")),
        }
    )
    table = lake.make("t", data)
    found = table.to_pyarrow_table()
    assert found.schema == pa.schema(
        [
            ("ns", pa.timestamp("us", "UTC")),
            ("zone", pa.timestamp("us", "UTC")),
            ("ms", pa.timestamp("us")),
            ("s", pa.timestamp("us", "UTC")),
        ]
    )
    (row,) = found.to_pylist()
    timestamp = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert row["ns"] == timestamp.replace(microsecond=123456)
    assert row["zone"] == row["s"] == timestamp
    assert row["ms"] == timestamp.replace(tzinfo=None, microsecond=123000)


def test_dictionary_view_and_large_types_are_stored_as_plain_types(lake: Lake) -> None:
    data = pa.table(
        {
            "dict": pa.array(["a", "b", "a", None]).dictionary_encode(),
            "view": pa.array(["a", "b", "long enough to be outside of the view", None]).cast(
                pa.string_view()
            ),
            "binary": pa.array([b"a", b"b", b"c", None]).cast(pa.binary_view()),
            "large": pa.array(["a", "b", "c", None], pa.large_string()),
        }
    )
    table = lake.make("t", data)
    found = table.to_pyarrow_table()
    assert [field.type for field in found.schema] == [
        pa.string(),
        pa.string(),
        pa.binary(),
        pa.string(),
    ]
    assert found["dict"].to_pylist() == ["a", "b", "a", None]
    assert found["view"].to_pylist()[2] == "long enough to be outside of the view"


def test_nested_view_and_large_types_are_read_back(lake: Lake) -> None:
    kind = pa.list_(pa.struct([("k", pa.string_view()), ("n", pa.large_string())]))
    data = pa.table({"l": pa.array([[{"k": "a", "n": "b"}], None, []], kind)})
    table = lake.make("t", data)
    assert table.to_pyarrow_table()["l"].to_pylist() == [[{"k": "a", "n": "b"}], None, []]


def test_sliced_and_chunked_data_is_written(lake: Lake) -> None:
    chunked = pa.concat_tables([sample().slice(1, 2), sample().slice(0, 1)])
    table = lake.make("t", chunked)
    assert column(table, "id") == [1, 2, 3]


def test_duplicate_or_no_columns_are_rejected(lake: Lake) -> None:
    with pytest.raises(Exception, match=r"(?i)duplicate"):
        lake.write_deltalake(lake.uri("t"), pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(Exception, match=r"(?i)duplicate"):
        lake.write_deltalake(lake.uri("u"), pa.table({"a": [1], "A": [2]}))
    with pytest.raises(Exception, match="At least one column"):
        lake.write_deltalake(lake.uri("v"), pa.table({}))


def test_sequence_of_batches_without_length_is_accepted(lake: Lake) -> None:
    class Batches(Sequence[pa.RecordBatch]):
        def __getitem__(self, place: Any) -> Any:
            return sample().to_batches()[place]

        def __len__(self) -> int:
            raise NotImplementedError

    lake.write_deltalake(lake.uri("t"), Batches())
    assert lake.DeltaTable(lake.uri("t")).count() == 3
