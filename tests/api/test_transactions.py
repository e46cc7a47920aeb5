"""Transactions with unusual rows, names, locations and versions."""

from __future__ import annotations

import gc
import json
import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql import AddFile, DeletionVector, ReadSet
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    InvalidActionError,
    TableChangedError,
    TableExistsError,
    TxnLogSchemaError,
    TxnLogTableNotFoundError,
    TxnLogUriError,
)
from deltasql.model.clock import now_ms
from deltasql.model.protocol import upgraded_protocol
from tests.conftest import add_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])
NAN = float("nan")


def ids(catalog: Catalog, name: str = "t") -> list[int]:
    """Return the ids in all live files, read with pyarrow."""
    table = catalog.table(name)
    paths = [Path(table.location) / path for path in table.scan().paths()]
    return sorted(i for path in paths for i in pa.parquet.read_table(path)["id"].to_pylist())


# Transactions that are never ended


def forget(catalog: Catalog) -> str:
    forgotten = catalog.begin()
    forgotten.create_table("orders", SCHEMA)
    forgotten.write("stock", pa.table({"id": [1]}))
    txn_id = forgotten.txn_id
    del forgotten
    gc.collect()
    return txn_id


def test_unfinished_transaction_warns_with_its_tables(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_table("stock", SCHEMA)
    with pytest.warns(ResourceWarning, match="neither committed nor rolled back.*orders, stock"):
        txn_id = forget(catalog)
    records = [each for each in caplog.records if "transaction not committed" in each.getMessage()]
    assert len(records) == 1
    assert txn_id in str(vars(records[0])) + records[0].getMessage()
    assert [table.name for table in catalog.tables()] == ["stock"]


def test_finished_or_read_only_transaction_does_not_warn(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        looked = catalog.begin()
        looked.read("t")
        rolled_back, committed, failed = catalog.begin(), catalog.begin(), catalog.begin()
        for tx in (rolled_back, committed, failed):
            tx.write("t", pa.table({"id": [1]}))
        rolled_back.rollback()
        committed.commit()
        with pytest.raises(KeyError), failed:
            raise KeyError
        del looked, rolled_back, committed, failed, tx
        gc.collect()


# Rows


@pytest.mark.parametrize("values", [[1.0, NAN, None, NAN], [0.0, -0.0, 0.0, 1.0]])
def test_rows_with_nan_null_and_zero_partitions_are_written_once(
    catalog: Catalog, values: list[float | None]
) -> None:
    rows = pa.table({"id": range(4), "p": pa.array(values, pa.float64())})
    catalog.create_table("t", rows.schema, partition_by="p")
    with catalog.begin() as tx:
        tx.write("t", rows)
    assert ids(catalog) == [0, 1, 2, 3]


def test_statistics_of_infinite_values_are_valid_json(catalog: Catalog) -> None:
    rows = pa.table({"id": [1, 2], "x": [1.0, float("inf")]})
    catalog.create_table("t", rows.schema)
    with catalog.begin() as tx:
        tx.write("t", rows)
    (text,) = catalog.table("t").files()["stats"].to_pylist()
    assert json.loads(text, parse_constant=pytest.fail)["maxValues"] == {"id": 2}
    assert len(catalog.table("t").scan("x > 5")) == 1


def test_overwrite_replaces_earlier_writes_of_the_transaction(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    for _ in range(2):  # first an empty table, then one with files
        with catalog.begin() as tx:
            for number in (1, 2, 3):
                tx.write("t", pa.table({"id": [number]}), mode="overwrite")
        assert ids(catalog) == [3]
    with catalog.begin() as tx:
        tx.create_table("new", SCHEMA)
        tx.write("new", pa.table({"id": [1]}))
        tx.write("new", pa.table({"id": [2]}), mode="overwrite")
    assert ids(catalog, "new") == [2]
    assert len(list(Path(catalog.table("new").location).glob("*.parquet"))) == 1
    assert catalog.store.intents_before(2**60) == []


# Versions and metadata


def test_conflict_check_uses_the_oldest_read_version(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    for name in "ab":
        with catalog.begin() as tx:
            tx.stage_table("t", [add_file(name)], reads=ReadSet(whole_table=True))
    tx = catalog.begin()
    tx.stage_table("t", [add_file("c")], read_version=1, reads=ReadSet(whole_table=True))
    tx.stage_table("t", [add_file("d")], read_version=2)
    with pytest.raises(ConcurrentAppendError):
        tx.commit()


def test_append_after_a_protocol_change_uses_the_new_protocol(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    for name in "ab":
        with catalog.begin() as tx:
            tx.stage_table("t", [add_file(name)])
    snapshot = catalog.table("t").snapshot()
    properties = {**snapshot.metadata.configuration, "delta.enableDeletionVectors": "true"}
    metadata = replace(snapshot.metadata, configuration=properties)
    protocol = upgraded_protocol(snapshot.protocol, snapshot.schema, properties)
    with catalog.begin() as tx:
        tx.stage_table("t", [metadata, protocol])
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 34, 2, offset=4)
    for name in "cd":
        with catalog.begin() as tx:
            tx.stage_table("t", [add_file(name, deletion_vector=vector)])
    assert catalog.table("t").version() == 5


def test_partition_columns_change_only_if_all_files_are_removed(catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    catalog.create_table("t", schema)
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file("a")])
    metadata = replace(catalog.table("t").snapshot().metadata, partition_columns=("day",))
    with pytest.raises(InvalidActionError, match="partition columns"), catalog.begin() as tx:
        tx.stage_table("t", [metadata])
    with catalog.begin() as tx:
        moved = add_file("day=x/b", partition_values={"day": "x"})
        tx.stage_table("t", [metadata, deltasql.RemoveFile("a"), moved])
    assert len(catalog.table("t").scan("day = 'x'")) == 1


def test_one_commit_can_have_statistics_of_many_columns(catalog: Catalog) -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(90)])
    catalog.create_table("t", schema, properties={"delta.dataSkippingNumIndexedCols": "-1"})
    low = {f"c{number}": number for number in range(90)}
    stats = json.dumps({"numRecords": 1, "minValues": low, "maxValues": low, "nullCount": {}})
    for number in range(2):
        add = AddFile(f"f{number}", {}, 1, 0, stats=stats)
        with catalog.begin() as tx:
            tx.stage_table("t", [add, *(deltasql.SetTransaction(f"a{n}", 1) for n in range(70))])
        with catalog.begin() as tx:
            tx.stage_table("t", [replace(add, path=f"g{number}")])
    assert len(catalog.table("t").scan("c89 = 89")) == 4
    assert len(catalog.table("t").scan("c89 = 90")) == 0


# Names and locations


def test_append_uses_a_table_that_another_connection_replaced(
    catalog: Catalog, backend: str
) -> None:
    # Only one process can open a DuckDB file, so one catalog is used.
    other = catalog if backend == "duckdb" else deltasql.connect(catalog.uri, catalog.config)
    catalog.create_table("t", SCHEMA)
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file("a")])
    other.drop("t")
    other.create_table("t", SCHEMA)
    while now_ms() <= other.table("t").row.created_at_ms:
        pass  # the transaction must begin in a later millisecond than the creation of the table
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file("b")])
    assert tx.versions == {"t": 1}
    assert catalog.table("t").scan().paths() == ["b"]
    other.drop("t")
    with pytest.raises((TxnLogTableNotFoundError, TableChangedError)), catalog.begin() as tx:
        tx.stage_table("t", [add_file("c")])


@pytest.mark.parametrize("read_version", [None, 0])
def test_table_replaced_after_the_first_read_is_not_changed(
    catalog: Catalog, read_version: int | None
) -> None:
    catalog.create_table("looked_at", SCHEMA)
    catalog.create_table("t", SCHEMA)
    tx = catalog.begin()
    tx.snapshot("looked_at")  # fixes the snapshot of all tables
    catalog.drop("t")
    catalog.create_table("t", SCHEMA)
    tx.stage_table("t", [add_file("late")], read_version=read_version)
    assert tx.snapshot("t").table.table_id == tx._staging.staged("t").table.table_id
    with pytest.raises(TableChangedError):
        tx.commit()
    assert catalog.table("t").scan().paths() == []


def test_handle_of_a_renamed_table_never_changes_a_new_table(
    catalog_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    uri = catalog_uri.with_table("t").to_string()
    deltasql.write_deltalake(uri, pa.table({"id": [1]}))
    handle = deltasql.DeltaTable(uri)
    catalog = handle._table.catalog
    catalog.rename("t", "older")
    deltasql.write_deltalake(uri, pa.table({"other": ["a"]}))
    changes: list[Callable[[], object]] = [
        lambda: deltasql.write_deltalake(handle, pa.table({"id": [2]}), mode="append"),
        lambda: deltasql.write_deltalake(handle, pa.table({"id": [2]}), mode="overwrite"),
        lambda: handle.delete(),
        lambda: handle.alter.set_table_description("mine"),
    ]
    for change in changes:
        with pytest.raises(TableChangedError):
            change()
    assert deltasql.DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"other": "a"}]
    assert [catalog.table(name).snapshot().version for name in ("t", "older")] == [0, 0]
    close_all()


def test_relative_paths_survive_a_change_of_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    with deltasql.connect("deltasql://sqlite/meta.db", pool={"max_size": 1}) as catalog:
        catalog.create_table("t", SCHEMA, location="data/t")
        os.chdir(second)
        pid = os.fork()  # connections are opened again after a fork
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
        assert catalog.table("t").location == str(first / "data/t")
    assert list(second.iterdir()) == []
    assert deltalake.DeltaTable(str(first / "data/t")).version() == 1


def test_two_tables_cannot_share_a_location(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", SCHEMA, location=str(tmp_path / "place"))
    with pytest.raises(TableExistsError, match="has its files at"):
        catalog.create_table("u", SCHEMA, location=str(tmp_path / "place"))
    catalog.drop("t")
    with pytest.raises(TableExistsError, match="has its files at"):
        catalog.create_table("u", SCHEMA, location=str(tmp_path / "place"))


def test_create_over_an_existing_delta_log_is_rejected(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    place = str(tmp_path / "place")
    deltalake.write_deltalake(place, pa.table({"id": [1]}))
    there = replace(catalog_uri.with_table("t"), location=place).to_string()
    with deltasql.connect(catalog_uri) as catalog:
        for write in (
            lambda: catalog.create_table("t", SCHEMA, location=place),
            lambda: deltasql.write_deltalake(there, pa.table({"id": [2]})),
        ):
            with pytest.raises(TableExistsError, match=r"(?s)holds a Delta table.*deltasql import"):
                write()
        assert catalog.tables() == []
        assert deltalake.DeltaTable(place).to_pyarrow_table().to_pydict() == {"id": [1]}
        catalog.import_table(place, name="t")
        assert catalog.table("t").version() == 0
    close_all()


def test_write_rejects_invalid_mode_partitioning_and_version(sqlite_uri: DeltaSqlUri) -> None:
    uri = sqlite_uri.with_table("t").to_string()
    rows = pa.table({"id": [1], "day": ["x"]})
    with pytest.raises(ValueError, match="apend"):
        deltasql.write_deltalake(uri, rows, mode="apend")
    deltasql.write_deltalake(uri, rows, mode="append", partition_by=["day"])
    with pytest.raises(TxnLogSchemaError, match="partitioning"):
        deltasql.write_deltalake(uri, rows, mode="append", partition_by=["id"])
    with pytest.raises(TxnLogUriError, match="old version"):
        deltasql.write_deltalake(f"{uri}&version=0", rows, mode="append")


def test_concurrent_renames_and_appends_lose_no_commit(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    stop = threading.Event()
    committed: list[int] = []

    def append(writer: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                with catalog.begin() as tx:
                    tx.stage_table("t", [add_file(f"{writer}-{number}")])
            except (TableChangedError, TxnLogTableNotFoundError):
                continue  # the table has the other name now
            committed.append(1)

    writers = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(10):
            catalog.rename("t", "u")
            catalog.rename("u", "t")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert catalog.table("t").version() == len(committed)


# One snapshot of all tables


def test_all_tables_are_read_at_the_snapshot_of_the_first_read(catalog: Catalog) -> None:
    grow(catalog, 1)
    with catalog.begin() as tx:
        first = tx.read("a")["id"].to_pylist()
        grow(catalog, 2)
        assert tx.read("b")["id"].to_pylist() == first == [1]
        assert tx.has_table("b")
    with catalog.begin() as tx:
        assert sorted(tx.read("b")["id"].to_pylist()) == [1, 2]


def test_change_of_rows_that_others_deleted_is_a_conflict(catalog: Catalog) -> None:
    grow(catalog, 1)
    with pytest.raises(ConcurrentDeleteDeleteError), catalog.begin() as tx:
        tx.read("a")
        with catalog.begin() as other:
            other.delete("b", "id = 1")
        tx.update("b", {"id": "id + 1"})
    assert ids(catalog, "b") == []


def test_table_created_after_begin_can_be_used(catalog: Catalog) -> None:
    grow(catalog, 1)
    with catalog.begin() as tx:
        tx.read("a")
        with catalog.begin() as other:
            other.write("late", pa.table({"id": [7]}))
        assert tx.read("late")["id"].to_pylist() == [7]
        tx.write("late", pa.table({"id": [8]}))
    assert ids(catalog, "late") == [7, 8]


def grow(catalog: Catalog, number: int) -> None:
    with catalog.begin() as tx:
        for name in ("a", "b"):
            tx.write(name, pa.table({"id": [number]}))
