"""Structs that are null although one of their fields is NOT NULL: every operation keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.engine.parquet.arrow_casts import cast_rows
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog, DeltaTable
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database

POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("p", POINT), ("l", pa.list_(POINT))])
ROWS = [
    {"id": 1, "p": {"x": 1, "y": "a"}, "l": [{"x": 1, "y": "a"}, None]},
    {"id": 2, "p": None, "l": None},
    {"id": 3, "p": None, "l": [None]},
]


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([row for row in ROWS if row["id"] in ids], schema=SCHEMA)


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


def merge(table: DeltaTable) -> None:
    merger = table.merge(rows(2, 3), "s.id = t.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


OPERATIONS: dict[str, Callable[[DeltaTable], object]] = {
    "merge": merge,
    "update": lambda table: table.update(updates={"id": "id"}, predicate="id >= 2"),
    "delete": lambda table: table.delete("id = 9"),
    "optimize": lambda table: table.optimize.compact(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_null_structs_stay_null(lake: Catalog, operation: str) -> None:
    uri = lake.uri.with_table("t").to_string()
    extra = pa.Table.from_pylist([{"id": 9, "p": {"x": 9}, "l": []}], schema=SCHEMA)
    deltasql.write_deltalake(uri, rows(1, 2))
    deltasql.write_deltalake(uri, pa.concat_tables([rows(3), extra]), mode="append")
    table = deltasql.DeltaTable(uri)
    OPERATIONS[operation](table)
    deltasql.DeltaTable(uri).delete("id = 9")
    location = lake.table("t").location
    for reader in (deltasql.DeltaTable(uri), deltalake.DeltaTable(location)):
        assert reader.to_pyarrow_table().sort_by("id").to_pylist() == ROWS


def test_sql_insert_accepts_a_null_struct_with_not_null_fields(lake: Catalog) -> None:
    deltasql.write_deltalake(lake.uri.with_table("t").to_string(), rows(1))
    lake.sql("INSERT INTO t VALUES (2, null, null), (3, null, array(null))")
    location = lake.table("t").location
    assert deltalake.DeltaTable(location).to_pyarrow_table().sort_by("id").to_pylist() == ROWS


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.date32(), pa.decimal128(38, 2), pa.string(), pa.binary(), pa.list_(pa.int8())],
    ids=str,
)
def test_cast_of_a_null_struct_gives_null(kind: pa.DataType) -> None:
    nullable = pa.struct([("a", pa.struct([("b", kind)]))])
    inner = pa.struct([pa.field("b", kind, nullable=False)])
    required = pa.struct([pa.field("a", inner, nullable=False)])
    for values in ([None, None], []):
        given = pa.table({"c": pa.array(values, nullable)})
        found = cast_rows(given, pa.schema([("c", required)]))
        found.validate(full=True)
        assert found.schema.field("c").type == required
        assert found.to_pylist() == given.to_pylist()


def test_null_in_a_required_field_is_refused() -> None:
    nullable = pa.struct([("b", pa.int64())])
    required = pa.struct([pa.field("b", pa.int64(), nullable=False)])
    given = pa.table({"c": pa.array([{"b": None}, None], nullable)})
    with pytest.raises(pa.ArrowInvalid, match="b"):
        cast_rows(given, pa.schema([("c", required)]))
