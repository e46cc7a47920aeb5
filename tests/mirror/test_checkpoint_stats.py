"""Statistics and partition values in a checkpoint: as JSON, as typed columns, or both."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql import AddFile
from deltasql.model.schema.schema import StructField, StructType
from deltasql.model.typed_stats import StatsParser, typed_value
from tests.mirror.checkpoint_support import actions_in, checkpoint, table_row

if TYPE_CHECKING:
    from deltasql import Catalog

pytestmark = pytest.mark.two_databases

AS_STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
NO_JSON = {**AS_STRUCT, "delta.checkpoint.writeStatsAsJson": "false"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("real", pa.float64()),
        ("price", pa.decimal128(20, 2)),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.date32())]))])),
    ]
)
LOW = {
    "id": -(2**63),
    "small": -3,
    "real": -1.5,
    "price": 123456789012345678.01,
    "name": 'a\n"é',
    "day": "2024-02-29",
    "at": "2024-02-29T12:00:00.123Z",
    "flag": False,
    "inner": {"x": 1, "deep": {"y": "0001-01-01"}},
}
NULLS = {**dict.fromkeys(LOW, 0), "raw": 1, "tags": 2, "inner": {"x": 3, "deep": {"y": 4}}}


def stats_of(price: str = "123456789012345678.01") -> str:
    """Return statistics with a decimal that has more digits than a float."""
    body = {"numRecords": 7, "minValues": LOW, "maxValues": LOW, "nullCount": NULLS}
    text = json.dumps({**body, "tightBounds": False}, ensure_ascii=False)
    return text.replace(json.dumps(LOW["price"]), price)


def add(path: str, stats: str | None, **partition: str | None) -> AddFile:
    """Return a file with these statistics."""
    return AddFile(path, partition, 1, 1, stats=stats)


def written(catalog: Catalog, adds: list[AddFile], **settings: Any) -> list[dict[str, Any]]:
    """Create a table with these files and return the add actions of its checkpoint."""
    catalog.create_table("t", settings.pop("schema", SCHEMA), **settings)
    with catalog.begin() as tx:
        tx.stage_table("t", adds)
    found = actions_in(table_row(catalog).location, checkpoint(catalog).version)["add"]
    return sorted(found, key=lambda each: str(each["path"]))


def test_statistics_are_json_only_by_default(catalog: Catalog) -> None:
    found = written(catalog, [add("a", stats_of()), add("b", None), add("c", "no json")])
    assert [each["stats"] for each in found] == [stats_of(), None, "no json"]
    assert "stats_parsed" not in found[0]
    assert "partitionValues_parsed" not in found[0]


def test_typed_statistics_have_column_types(catalog: Catalog) -> None:
    found = written(catalog, [add("a", stats_of())], properties=AS_STRUCT)
    parsed = found[0]["stats_parsed"]
    bounds = {
        "id": -(2**63),
        "small": -3,
        "real": -1.5,
        "price": Decimal("123456789012345678.01"),
        "name": 'a\n"é',
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, 0, 0, 123000, UTC),
        "flag": False,
        "inner": {"x": 1, "deep": {"y": date(1, 1, 1)}},
    }
    assert parsed["minValues"] == parsed["maxValues"] == bounds
    assert parsed["nullCount"] == NULLS
    assert (parsed["numRecords"], parsed["tightBounds"]) == (7, False)
    assert found[0]["stats"] == stats_of()


def test_json_statistics_can_be_disabled(catalog: Catalog) -> None:
    found = written(catalog, [add("a", stats_of())], properties=NO_JSON)
    assert "stats" not in found[0]
    assert found[0]["stats_parsed"]["numRecords"] == 7


def test_only_the_value_of_the_wrong_type_becomes_null(catalog: Catalog) -> None:
    odd = json.dumps(
        {
            "numRecords": 1,
            "minValues": {
                "id": 1.5,
                "small": 70000,
                "real": "NaN",
                "price": "x",
                "name": 5,
                "day": "2024-02-30",
                "at": "soon",
                "flag": "true",
                "inner": 3,
            },
            "maxValues": {"id": 4, "real": "-Infinity", "at": "2024-01-01T00:00:00"},
            "nullCount": {"id": 0, "tags": None, "inner": {"x": 1}},
        }
    )
    found = written(
        catalog,
        [add("a", odd), add("b", stats_of()), add("c", "no json"), add("d", "[1]"), add("e", None)],
        properties=AS_STRUCT,
    )
    first, second, *others = (each["stats_parsed"] for each in found)
    low, high = first["minValues"], first["maxValues"]
    assert math.isnan(low.pop("real"))
    assert low.pop("flag") is True
    assert set(low.values()) == {None}
    assert (high["id"], high["real"]) == (4, -math.inf)
    assert high["at"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert first["nullCount"]["inner"] == {"x": 1, "deep": None}
    assert second["minValues"]["price"] == Decimal("123456789012345678.01")
    assert others == [None, None, None]


def test_files_without_statistics_have_no_typed_statistics(catalog: Catalog) -> None:
    found = written(catalog, [add("a", None), add("b", None)], properties=AS_STRUCT)
    assert [each["stats_parsed"] for each in found] == [None, None]


def test_only_columns_with_statistics_are_typed(catalog: Catalog) -> None:
    properties = {**AS_STRUCT, "delta.dataSkippingNumIndexedCols": "2"}
    found = written(catalog, [add("a", stats_of())], properties=properties)
    assert set(found[0]["stats_parsed"]["minValues"]) == {"id", "small"}
    assert set(found[0]["stats_parsed"]["nullCount"]) == {"id", "small"}


def test_table_without_ordered_columns_has_no_bounds(catalog: Catalog) -> None:
    schema = pa.schema([("tags", pa.list_(pa.string()))])
    stats = '{"numRecords":2,"nullCount":{"tags":1}}'
    found = written(catalog, [add("a", stats)], schema=schema, properties=AS_STRUCT)
    assert found[0]["stats_parsed"] == {
        "numRecords": 2,
        "nullCount": {"tags": 1},
        "tightBounds": None,
    }


def test_partition_values_are_typed(catalog: Catalog) -> None:
    names = ("small", "price", "name", "day", "at", "flag", "raw")
    values = [
        dict(zip(names, texts, strict=True))
        for texts in (
            ("-7", "1.50", "a b", "2024-02-29", "2024-02-29 12:00:00", "true", "é"),
            ("7", "-0.01", "", "0001-01-01", "2024-02-29T12:00:00.000001Z", "false", ""),
            (None, None, None, None, None, None, None),
            ("x", "y", "z", "2024-02-30", "soon", "maybe", "b"),
        )
    ]
    adds = [add(str(number), None, **each) for number, each in enumerate(values)]
    found = written(catalog, adds, partition_by=list(names), properties=AS_STRUCT)
    parsed = [tuple(each["partitionValues_parsed"][n] for n in names) for each in found]
    timestamp = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert parsed == [
        (-7, Decimal("1.50"), "a b", date(2024, 2, 29), timestamp, True, "é".encode()),
        (7, Decimal("-0.01"), None, date(1, 1, 1), timestamp.replace(microsecond=1), False, None),
        (None,) * 7,
        (None, None, "z", None, None, None, b"b"),
    ]
    assert [each["partitionValues"] for each in found] == values


def test_typed_statistics_use_physical_names(catalog: Catalog) -> None:
    properties = {**AS_STRUCT, "delta.columnMapping.mode": "name"}
    key, day = "col-1", "col-2"
    names = {key: ("id col", "long"), day: ("the day", "date")}
    schema = StructType(
        tuple(
            StructField(
                name,
                kind,
                metadata={
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": physical,
                },
            )
            for number, (physical, (name, kind)) in enumerate(names.items(), 1)
        )
    )
    properties["delta.columnMapping.maxColumnId"] = "2"
    catalog.create_table("t", schema, partition_by=["the day"], properties=properties)
    stats = json.dumps({"numRecords": 1, "minValues": {key: 5}, "maxValues": {key: 5}})
    with catalog.begin() as tx:
        tx.stage_table("t", [AddFile("a", {day: "2024-01-01"}, 1, 1, stats=stats)])
    (found,) = actions_in(table_row(catalog).location, checkpoint(catalog).version)["add"]
    assert found["stats_parsed"]["minValues"] == {key: 5}
    assert found["partitionValues_parsed"] == {day: date(2024, 1, 1)}


@pytest.mark.parametrize(
    ("value", "kind", "typed"),
    [
        (1, pa.bool_(), None),
        (True, pa.int64(), None),
        (True, pa.string(), None),
        (Decimal("3.0"), pa.int8(), 3),
        (300, pa.int8(), None),
        (2**70, pa.int64(), None),
        (Decimal("1.234"), pa.decimal128(10, 2), None),
        ("Infinity", pa.float32(), math.inf),
        ([1], pa.date32(), None),
        ({}, pa.timestamp("us"), None),
        ("2024-01-01T01:00:00+01:00", pa.timestamp("us"), datetime(2024, 1, 1, 1)),
    ],
)
def test_value_that_does_not_fit_the_type_becomes_none(
    value: Any, kind: pa.DataType, typed: Any
) -> None:
    assert typed_value(value, kind) == typed


def test_vectorized_and_row_wise_parsing_of_statistics_agree() -> None:
    kind = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", pa.struct([("a", pa.date32()), ("b", pa.decimal128(5, 1))])),
            ("tightBounds", pa.bool_()),
        ]
    )
    texts = pa.array(
        [
            '{"numRecords":1,"minValues":{"a":"2024-01-01","b":1.5},"x":{"y":[1]}}',
            None,
            "{}",
            ' { "tightBounds" : true , "minValues" : { "b" : "12.5" } } ',
            '{"minValues":null}',
        ]
    )
    parser = StatsParser(kind)
    at_once = parser._parse_at_once(texts)
    assert at_once is not None
    assert at_once.to_pylist() == parser._parse_each(texts).to_pylist()
