"""A write can change the schema of a table with `schema_mode`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import TxnLogSchemaError, TxnLogTransactionError
from tests.operations.deltalake_comparison import Twins, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2], "name": ["x", "y"]})


@pytest.fixture
def twins(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Twins]:
    place = str(tmp_path / "ours")
    uri = replace(sqlite_uri.with_table("sales"), location=place).to_string()
    yield Twins(str(tmp_path / "stock"), uri, place)
    close_all()


def mapped(value: dict[str, int]) -> pa.Table:
    kind = pa.map_(pa.string(), pa.struct([(name, pa.int64()) for name in value]))
    return pa.table({"m": pa.array([[("k", value)]], kind)})


STRUCT = pa.table({"s": [{"x": 1}], "l": [[{"x": 1}]]})
MERGES = {
    "a column more": (ROWS, ROWS.append_column("more", [[1.5, None]])),
    "in the middle": (ROWS, pa.table({"id": [3], "more": [1], "name": ["z"]})),
    "a column less": (ROWS, pa.table({"id": [3]})),
    "another column": (ROWS, pa.table({"more": [True]})),
    "only known columns": (ROWS, ROWS.select(["name", "id"])),
    "other types are cast": (ROWS, pa.table({"id": ["3"], "more": [1]})),
    "members more": (STRUCT, pa.table({"s": [{"x": 1, "y": "q"}], "l": [[{"y": 2, "x": 1}]]})),
    "members less": (STRUCT, pa.table({"s": [{"y": 1}], "l": [[{"z": 1}]]})),
    "values of maps": (mapped({"x": 1}), mapped({"y": 2, "x": 1})),
}


@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_schema_merge_adds_columns_and_struct_fields(twins: Twins, name: str, mode: str) -> None:
    before, data = MERGES[name]
    assert twins.write(before) is None
    assert twins.write(data, mode=mode, schema_mode="merge") is None
    twins.assert_alike()


def test_existing_rows_have_nulls_in_new_columns(twins: Twins) -> None:
    assert twins.write(ROWS) is None
    schema = pa.schema([("id", pa.int64()), pa.field("more", pa.int64(), nullable=False)])
    data = pa.table([[3], [4]], schema=schema)
    deltasql.write_deltalake(twins.uri, data, mode="append", schema_mode="merge")
    table = deltasql.DeltaTable(twins.uri)
    assert table.schema().to_arrow().field("more").nullable
    assert rows(table) == rows(deltalake.DeltaTable(twins.location))


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"other": ["q"]}),
        pa.table({"id": ["text"], "more": [1]}),
        ROWS,
    ],
    ids=lambda table: ",".join(table.column_names),
)
def test_schema_overwrite_uses_the_schema_of_the_data(twins: Twins, data: pa.Table) -> None:
    assert twins.write(ROWS) is None
    assert twins.write(data, mode="overwrite", schema_mode="overwrite") is None
    twins.assert_alike()


@pytest.mark.parametrize("schema_mode", ["merge", "overwrite"])
def test_overwrite_with_predicate_can_add_columns(twins: Twins, schema_mode: str) -> None:
    assert twins.write(ROWS) is None
    data = pa.table({"id": [1], "name": ["q"], "more": [1]})
    options = {"mode": "overwrite", "predicate": "id = 1", "schema_mode": schema_mode}
    assert twins.write(data, **options) is None
    twins.assert_alike()


def test_decimal_merge_that_loses_digits_is_rejected(twins: Twins) -> None:
    from decimal import Decimal

    assert twins.write(pa.table({"d": pa.array([Decimal("1.2")], pa.decimal128(10, 2))})) is None
    more = pa.table({"d": pa.array([Decimal("1.2")], pa.decimal128(12, 3))})
    error = twins.write(more, mode="append", schema_mode="merge")
    assert isinstance(error, TxnLogSchemaError)
    assert "Cannot merge field d" in str(error)


def test_timestamps_without_zone_need_the_feature_or_a_schema_mode(twins: Twins) -> None:
    naive = pa.table({"at": [datetime(2024, 5, 1)]})
    assert twins.write(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})) is None
    error = twins.write(naive, mode="append")
    assert isinstance(error, TxnLogTransactionError)
    assert "Table features must be specified" in str(error)
    assert "TimestampWithoutTimezone" in str(error)
    assert twins.write(naive, mode="append", schema_mode="merge") is None
    twins.assert_alike()
    assert twins.write(naive, mode="overwrite", schema_mode="overwrite") is None
    twins.assert_alike()
    features = deltasql.DeltaTable(twins.uri).protocol().reader_features
    assert features == ["timestampNtz"]


def test_column_mapping_gives_new_columns_unique_physical_names(twins: Twins) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    deltasql.write_deltalake(twins.uri, ROWS, configuration=mapped)
    wider = ROWS.append_column("the sum (net)", [[1, 2]])
    deltasql.write_deltalake(twins.uri, wider, mode="append", schema_mode="merge")
    table = deltasql.DeltaTable(twins.uri)
    marks = [field.metadata for field in table.schema().fields]
    assert [mark["delta.columnMapping.id"] for mark in marks] == [1, 2, 3]
    assert len({mark["delta.columnMapping.physicalName"] for mark in marks}) == 3
    ours = sorted(map(repr, pa.table(table.scan()).to_pylist()))
    stock = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(twins.location))
    theirs = pa.table(stock.execute("SELECT * FROM t")).to_pylist()
    assert ours == sorted(map(repr, theirs))
