"""Statistics: minimum and maximum cover every row, as tightly as Delta can express."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql.engine.parquet.file_shape import FileShape
from deltasql.engine.parquet.footer_stats import footer_statistics
from deltasql.engine.parquet.statistics import Statistics
from deltasql.engine.parquet.writer import write_batches
from tests.engine.support import plan_for

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
    "last": (pa.string(), st.text("a\U0010ffff", min_size=30, max_size=36)),
    "price": (
        pa.decimal128(20, 4),
        st.decimals(-(10**15), 10**15, places=4, allow_nan=False, allow_infinity=False),
    ),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "plain": (pa.timestamp("us"), st.datetimes()),
    "flag": (pa.bool_(), st.booleans()),
}
READ: dict[str, Callable[[Any], Any]] = {
    "day": date.fromisoformat,
    "at": datetime.fromisoformat,
    "plain": datetime.fromisoformat,
    "price": Decimal,
}


def stats_of(table: pa.Table, chunks: int = 1) -> dict[str, Any]:
    found = Statistics(dict.fromkeys(table.column_names))
    step = max(1, math.ceil(table.num_rows / chunks))
    for start in range(0, max(1, table.num_rows), step):
        found.add(table.slice(start, step))
    parsed: dict[str, Any] = json.loads(found.to_json(), parse_float=Decimal)
    return parsed


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data(), chunks=st.integers(1, 3))
def test_bounds_cover_every_row(name: str, data: st.DataObject, chunks: int) -> None:
    kind, values = KINDS[name]
    rows = data.draw(st.lists(st.none() | values, max_size=12))
    stats = stats_of(pa.table({"v": pa.array(rows, kind)}), chunks)
    assert stats["numRecords"] == len(rows)
    assert stats["nullCount"] == {"v": rows.count(None)}
    known = [row for row in rows if row is not None]
    low, high = (stats[side].get("v") for side in ("minValues", "maxValues"))
    if name in ("double", "float") and not all(map(math.isfinite, known)):
        assert (low, high) == (None, None)
        return
    if not known:
        assert (low, high) == (None, None)
        return
    read = READ.get(name, lambda bound: bound)
    low, high = (None if bound is None else read(bound) for bound in (low, high))
    if name in ("double", "float"):
        low, high = float(low), float(high)
    assert low is None or all(low <= row for row in known)
    assert high is None or all(row <= high for row in known)
    if name in ("text", "last"):
        assert low == min(known)[:32]
        if len(max(known)) <= 32:
            assert high == max(known)
    elif name in ("at", "plain"):
        millisecond = timedelta(milliseconds=1)
        assert min(known) - low < millisecond
        assert high is None or high - max(known) < millisecond
    else:
        assert (low, high) == (min(known), max(known))


def test_minimum_zero_is_written_as_negative_zero_and_maximum_zero_as_positive_zero() -> None:
    for rows in ([0.0, -0.0], [0.0], [-0.0]):
        stats = stats_of(pa.table({"v": rows}))
        assert math.copysign(1, stats["minValues"]["v"]) == -1
        assert math.copysign(1, stats["maxValues"]["v"]) == 1


def test_maximum_is_omitted_if_json_cannot_represent_the_date_or_timestamp() -> None:
    last = int(
        (datetime(9999, 12, 31, 23, 59, 59, 999999, UTC) - EPOCH) / timedelta(microseconds=1)
    )
    stats = stats_of(pa.table({"v": pa.array([0, last], pa.timestamp("us", "UTC"))}))
    assert (stats["minValues"], stats["maxValues"]) == ({"v": "1970-01-01T00:00:00Z"}, {})
    stats = stats_of(pa.table({"v": pa.array([0, last * 2], pa.timestamp("us"))}))
    assert (stats["minValues"], stats["maxValues"]) == ({"v": "1970-01-01 00:00:00"}, {})
    stats = stats_of(pa.table({"v": pa.array([0, 10_000_000], pa.int32()).cast(pa.date32())}))
    assert (stats["minValues"], stats["maxValues"]) == ({"v": "1970-01-01"}, {})


def written_stats(folder: Path, table: pa.Table, **properties: str) -> dict[str, Any]:
    plan = plan_for(folder, table.schema, configuration=properties)
    [add] = write_batches(table.to_reader(), plan)
    parsed: dict[str, Any] = json.loads(add.stats or "")
    return parsed


ROWS = pa.table(
    {
        "a": [1, 2],
        "s": pa.array(
            [{"b": 1, "c": "x", "d": {"e": 5}}, None],
            pa.struct(
                [("b", pa.int64()), ("c", pa.string()), ("d", pa.struct([("e", pa.int64())]))]
            ),
        ),
        "raw": [b"x", None],
        "l": [[1], None],
        "z": ["q", None],
    }
)


def test_struct_fields_have_bounds_and_other_types_only_null_counts(tmp_path: Path) -> None:
    stats = written_stats(tmp_path, ROWS)
    assert stats["minValues"] == {"a": 1, "s": {"b": 1, "c": "x", "d": {"e": 5}}, "z": "q"}
    assert stats["nullCount"] == {
        "a": 0,
        "s": {"b": 1, "c": 1, "d": {"e": 1}},
        "raw": 1,
        "l": 1,
        "z": 1,
    }
    assert "tightBounds" not in stats


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a": 0, "s": {"b": 1}}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, {}),
        ({"delta.dataSkippingStatsColumns": "z, s.d"}, {"s": {"d": {"e": 1}}, "z": 1}),
    ],
    ids=str,
)
def test_only_indexed_columns_have_statistics(
    tmp_path: Path, properties: dict[str, str], columns: dict[str, Any]
) -> None:
    stats = written_stats(tmp_path, ROWS, **properties)
    assert stats["nullCount"] == columns
    assert stats["numRecords"] == 2


def test_tight_bounds_are_recorded_with_deletion_vectors(tmp_path: Path) -> None:
    stats = written_stats(tmp_path, ROWS, **{"delta.enableDeletionVectors": "true"})
    assert stats["tightBounds"] is True


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_footer_bounds_are_correct_in_every_time_unit(unit: str, tmp_path: Path) -> None:
    timestamps = [datetime(1971, 5, 1, 12, 0, 0, 123_000), datetime(2024, 2, 29)]
    pq.write_table(
        pa.table({"at": pa.array(timestamps, pa.timestamp(unit))}), tmp_path / "f.parquet"
    )
    stored = pa.schema([("at", pa.timestamp("us"))])
    shape = FileShape(stored, stored, (), (), {"at": None}, ())
    found = json.loads(footer_statistics(pq.read_metadata(tmp_path / "f.parquet"), shape).to_json())
    assert found["minValues"] == {"at": "1971-05-01 12:00:00.123"}
    assert found["maxValues"] == {"at": "2024-02-29 00:00:00"}
