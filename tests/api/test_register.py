"""After `register()`, deltalake's names accept deltasql URIs; plain paths work as before."""

from __future__ import annotations

import inspect
import pickle
import threading
from typing import TYPE_CHECKING, Any

import deltalake
import deltalake.table
import deltalake.transaction
import deltalake.writer.convert_to
import deltalake.writer.writer
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.fs._base_handler import BaseDeltaStorageHandler
from deltalake.transaction import AddAction, create_table_with_add_actions

import deltasql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "part": ["a", "a", "b"]})
PLACES: list[Any] = [
    deltalake,
    deltalake.table,
    deltalake.transaction,
    deltalake.writer.writer,
    deltalake.writer.convert_to,
    deltalake.DeltaTable,
    deltalake.QueryBuilder,
    BaseDeltaStorageHandler,
    DeltaStorageHandler,
]


@pytest.fixture
def registered() -> Iterator[None]:
    deltasql.register()
    yield
    deltasql.unregister()


@pytest.fixture
def uri(catalog_uri: DeltaSqlUri, tmp_path: Path, registered: None) -> str:
    from dataclasses import replace

    place = str(tmp_path / "lake" / "t")
    return replace(catalog_uri.with_table("t"), location=place).to_string()


def test_names_imported_before_register_accept_uris(uri: str) -> None:
    write_deltalake(uri, ROWS, partition_by=["part"])
    write_deltalake(uri, ROWS, mode="append")
    table = DeltaTable(uri)
    assert isinstance(table, deltasql.DeltaTable)
    assert isinstance(table, deltalake.DeltaTable)
    assert table.to_pyarrow_table().num_rows == 6
    assert table.version() == 1
    assert table.history(1)[0]["operation"] == "WRITE"
    assert DeltaTable(uri, version=0).to_pyarrow_table().num_rows == 3
    assert pickle.loads(pickle.dumps(table)).version() == 1


def test_writing_through_a_table_object_updates_its_version(uri: str) -> None:
    write_deltalake(uri, ROWS)
    table = DeltaTable(uri)
    write_deltalake(table, ROWS, mode="overwrite")
    assert table.version() == 1
    table.delete("id = 1")
    source = pa.table({"id": [3, 8], "part": ["z", "z"]})
    merged = (
        table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert merged["num_target_rows_inserted"] == 1
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [2, 3, 8]


def test_create_and_is_deltatable_accept_uris(uri: str) -> None:
    assert not DeltaTable.is_deltatable(uri)
    with pytest.raises(TableNotFoundError):
        DeltaTable(uri)
    created = DeltaTable.create(uri, ROWS.schema, partition_by="part", name="sales")
    assert isinstance(created, deltasql.DeltaTable)
    assert created.metadata().name == "sales"
    assert DeltaTable.is_deltatable(uri)


def test_query_builder_joins_catalog_and_plain_tables(uri: str, tmp_path: Path) -> None:
    write_deltalake(uri, ROWS)
    write_deltalake(str(tmp_path / "plain"), ROWS.slice(0, 2))
    builder = QueryBuilder().register("plain", DeltaTable(str(tmp_path / "plain")))
    builder.register("ours", DeltaTable(uri))
    result = pa.table(builder.execute("select ours.id from ours join plain on ours.id = plain.id"))
    assert sorted(result["id"].to_pylist()) == [1, 2]


def test_query_builder_subclass_keeps_its_methods(uri: str) -> None:
    class Theirs(QueryBuilder):
        def count(self, name: str) -> int:
            result = pa.table(self.execute(f"select count(*) as n from {name}"))
            return int(result["n"][0].as_py())

    write_deltalake(uri, ROWS)
    builder = Theirs()
    builder.register("ours", DeltaTable(uri))
    builder.register("again", DeltaTable(uri))
    assert isinstance(builder, Theirs)
    assert (builder.count("ours"), builder.count("again")) == (ROWS.num_rows, ROWS.num_rows)


def test_storage_handler_reads_files_of_a_catalog_table(uri: str) -> None:
    write_deltalake(uri, ROWS)
    table = DeltaTable(uri)
    (file,) = table.get_add_actions().column("path").to_pylist()
    for handler in (DeltaStorageHandler.from_table(table._table), DeltaStorageHandler(uri)):
        with handler.open_input_file(file) as opened:
            assert pq.read_table(opened).num_rows == ROWS.num_rows


def test_subclass_of_the_stock_class_accepts_uris(uri: str) -> None:
    class Theirs(DeltaTable):
        pass

    write_deltalake(uri, ROWS)
    table = Theirs(uri)
    assert type(table) is Theirs
    assert table.version() == 0
    assert table.to_pyarrow_table().num_rows == 3


def test_convert_accepts_uris(uri: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    pq.write_table(ROWS, folder / "part-0.parquet")
    convert_to_deltalake(uri)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 3


def test_create_with_add_actions_accepts_uris(uri: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    pq.write_table(ROWS, folder / "one.parquet")
    size = (folder / "one.parquet").stat().st_size
    add = AddAction("one.parquet", size, {}, 0, True, '{"numRecords":3}')
    create_table_with_add_actions(uri, deltalake.Schema.from_arrow(ROWS.schema), [add])
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 3


def test_plain_paths_still_use_deltalake(tmp_path: Path, registered: None) -> None:
    path = str(tmp_path / "plain")
    assert not DeltaTable.is_deltatable(path)
    write_deltalake(path, ROWS)
    table = DeltaTable(path)
    assert type(table) is deltalake.DeltaTable
    assert type(table._table) is deltalake._internal.RawDeltaTable
    assert DeltaTable.is_deltatable(path)
    assert type(DeltaTable.create(str(tmp_path / "new"), ROWS.schema)) is deltalake.DeltaTable
    assert type(QueryBuilder().register("t", table)) is deltalake.QueryBuilder
    assert table.to_pyarrow_dataset().count_rows() == 3
    with pytest.raises(TableNotFoundError):
        DeltaTable("unknown://x")


def test_unregister_restores_every_attribute() -> None:
    before = [dict(vars(place)) for place in PLACES]
    signature = inspect.signature(DeltaTable.__init__)
    deltasql.register()
    deltasql.register()
    assert [dict(vars(place)) for place in PLACES] != before
    assert inspect.signature(DeltaTable.__init__) == signature
    deltasql.unregister()
    deltasql.unregister()
    for place, attributes in zip(PLACES, before, strict=True):
        after = dict(vars(place))
        assert after.keys() == attributes.keys()
        assert all(after[name] is value for name, value in attributes.items())
    with pytest.raises(TableNotFoundError, match="Unknown scheme"):
        DeltaTable("deltasql://sqlite/none.db?table=t")


def test_concurrent_register_calls_patch_once() -> None:
    before = dict(vars(DeltaTable))
    barrier = threading.Barrier(8)

    def together() -> None:
        barrier.wait()
        deltasql.register()

    threads = [threading.Thread(target=together) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deltasql.unregister()
    assert all(vars(DeltaTable)[name] is value for name, value in before.items())
