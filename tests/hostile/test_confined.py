"""Nothing outside a table's folder is deleted, and temporary files are private."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.config import EngineSettings
from deltasql.engine.duckdb import connection as duckdb_shared
from deltasql.storage.location import location_key
from tests.hostile.logs import HostileTable, added

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "b", "b"]})


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_drop_deletes_no_files(catalog: Catalog, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "others.txt").write_text("not ours")
    inside = shared / "a" / "t"
    for name, place in (("a.t", inside), ("a.around", shared)):
        where = {"location": str(place), "allow_nested_location": True}
        catalog.create_table(name, ROWS.schema, partition_by="p", **where)
        with catalog.begin() as tx:
            tx.write(name, ROWS)
    (inside / "link").symlink_to(shared)
    before = all_files(shared)
    assert len(before) >= 5
    for name in ("a.t", "a.around"):
        catalog.drop(name)
    catalog.drop_namespace("a")
    assert catalog.tables() == []
    assert all_files(shared) == before
    catalog.undrop("a.t")
    with catalog.begin() as tx:
        assert tx.read("a.t").num_rows == 3


@pytest.mark.parametrize("link", ["folder of a partition", "folder of the table"])
def test_vacuum_does_not_follow_symbolic_links(catalog: Catalog, tmp_path: Path, link: str) -> None:
    outside_folder, place = tmp_path / "victim", tmp_path / "lake" / "t"
    outside_folder.mkdir()
    place.parent.mkdir(exist_ok=True)
    if link == "folder of the table":
        (tmp_path / "real").mkdir()
        place.symlink_to(tmp_path / "real")
    catalog.create_table("t", ROWS.schema, partition_by="p", location=str(place))
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    for name in ("precious.parquet", "part-old.parquet"):
        (outside_folder / name).write_bytes(b"PAR1")
        os.utime(outside_folder / name, (1, 1))
    (place / "p=evil").symlink_to(outside_folder)
    stray = place / "p=a" / "stray.parquet"
    stray.write_bytes(b"PAR1")
    os.utime(stray, (1, 1))
    before = all_files(outside_folder)
    gone = catalog.vacuum(
        "t", dry_run=False, full=True, retention_hours=0, enforce_retention_duration=False
    )
    assert gone == ["p=a/stray.parquet"]
    assert all_files(outside_folder) == before
    with catalog.begin() as tx:
        assert tx.read("t").num_rows == 3


def count(catalog: Catalog, name: str) -> int:
    with catalog.begin() as tx:
        return tx.read(name).num_rows


def removed(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1, "size": 1}}


@pytest.mark.every_database
@pytest.mark.parametrize("full", [False, True])
def test_remove_actions_of_a_foreign_log_delete_no_files_of_other_tables(
    catalog_uri: DeltaSqlUri, backend: str, tmp_path: Path, full: bool
) -> None:
    lake = tmp_path / "lake"
    inside = replace(catalog_uri, database=str(lake / "meta.db"))
    uri = catalog_uri if backend == "postgres" else inside
    settings: dict[str, Any] = {"allow_nested_location": True}
    with deltasql.connect(uri, mirror={"mode": "off"}, table=settings) as catalog:
        for name in ("live", "dropped"):  # they have no log: the mirror is off
            catalog.create_table(name, ROWS.schema, location=str(lake / name))
            with catalog.begin() as tx:
                tx.write(name, ROWS)
        catalog.drop("dropped")
        catalog.create_table("source", ROWS.schema, location=str(tmp_path / "source"))
        catalog.mirror.add_target("source", "copy", str(lake / "copy"))
        catalog.mirror.add_target("source", "views", str(lake / "views.duckdb"), kind="duckdb")
        deltalake.write_deltalake(lake / "p=1" / "stock", ROWS)
        for name in ("_hidden/a", ".b", "_c.parquet", "copy/d", "views.duckdb", "e.parquet"):
            (lake / name).parent.mkdir(parents=True, exist_ok=True)
            (lake / name).write_bytes(b"x")
        names = [path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()]
        assert {"live", "dropped", "p=1"} <= {name.partition("/")[0] for name in names}
        spelled = [f"%{ord(name[0]):x}{name[1:]}" for name in names]
        spelled += [f"file://{lake}/{name}" for name in names]
        own_log = ["_delta_log/00000000000000000000.json", "%5Fdelta_log/%30%30.json"]
        actions = [removed(each) for each in (*names, *spelled, *own_log)]
        vector = {"storageType": "p", "pathOrInlineDv": f"file://{lake}/live/v.bin", "offset": 1}
        vector |= {"sizeInBytes": 1, "cardinality": 1}
        actions.append({"remove": {**removed("f.parquet")["remove"], "deletionVector": vector}})
        (lake / "live/v.bin").write_bytes(b"x")
        catalog.import_table(HostileTable(lake, actions=actions).write(), name="hostile")
        os.utime(lake / "e.parquet", (1, 1))
        (lake / "real.parquet").unlink()
        before = set(all_files(lake))
        options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
        gone = catalog.vacuum("hostile", **options, full=full, dry_run=True)
        assert catalog.vacuum("hostile", **options, full=full, dry_run=False) == gone
        lost = {Path(each).relative_to(lake).as_posix() for each in before - set(all_files(lake))}
        assert lost == {"e.parquet"}  # it is in the table's folder and belongs to no table
        catalog.undrop("dropped")
        with catalog.begin() as tx:
            assert tx.read("live").num_rows == tx.read("dropped").num_rows == 3
    assert deltalake.DeltaTable(lake / "p=1" / "stock").to_pyarrow_table().num_rows == 3


@pytest.mark.every_database
def test_vacuum_keeps_files_that_a_shallow_clone_needs(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "source"
    catalog.create_table("source", ROWS.schema, location=str(place))
    spellings = (f"file://{place}", f"file:{place}", f"{place}", f"file://{place}/../source")
    for _ in spellings:
        with catalog.begin() as tx:
            tx.write("source", ROWS)
    files = catalog.table("source").files().to_pylist()
    catalog.create_table("clone", ROWS.schema)
    with catalog.begin() as tx:
        for root, file in zip(spellings, files, strict=True):
            tx.stage_table("clone", [added(f"{root}/{file['path']}", size=file["size"])])
    for _ in range(2):  # the second one removes the file of the first
        with catalog.begin() as tx:
            tx.write("source", ROWS.slice(0, 1), mode="overwrite")
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    for full, deleted in ((False, 1), (True, 0)):
        assert len(catalog.vacuum("source", **options, full=full, dry_run=False)) == deleted
    assert count(catalog, "clone") == 12
    with catalog.begin() as tx:
        tx.delete("clone")
    gone = catalog.vacuum("source", **options, dry_run=False)
    assert set(gone) == {file["path"] for file in files}
    assert len(list(place.rglob("*.parquet"))) == 1


@pytest.mark.every_database
def test_vacuum_keeps_files_of_tables_in_the_same_or_an_outer_folder(
    catalog: Catalog, tmp_path: Path
) -> None:
    place = tmp_path / "one" / "p=a"
    tables = {"inner": place, "same": tmp_path / "other", "outer": tmp_path / "one"}
    for name, folder in tables.items():
        where = {"location": str(folder), "allow_nested_location": True}
        catalog.create_table(name, ROWS.schema, partition_by="p", **where)
    key = location_key(str(place))
    with catalog.store.session() as session:  # as an earlier release allowed
        session.begin()
        session.script(f"UPDATE dl_tables SET location = '{place}' WHERE name = 'same'")
        session.script(
            f"UPDATE dl_table_locations SET live_location_key = NULL, location_key = '{key}' "
            "WHERE table_id = (SELECT table_id FROM dl_tables WHERE name = 'same')"
        )
        session.commit()
    for name in ("same", "outer", "inner"):
        with catalog.begin() as tx:
            tx.write(name, ROWS)
    running = catalog.begin()
    running.write("same", ROWS)
    before = all_files(tmp_path)
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    (place / "stray.parquet").write_bytes(b"x")
    for name in ("inner", "same", "outer"):
        gone = catalog.vacuum(name, **options, full=True, dry_run=False)
        assert gone == (["stray.parquet"] if name == "inner" else [])
    running.commit()
    assert all_files(tmp_path).keys() >= before.keys()
    for name, rows in (("inner", 3), ("same", 6), ("outer", 3)):
        assert count(catalog, name) == rows


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_spilled_rows_are_readable_only_by_this_user() -> None:
    database = duckdb_shared.open_database(EngineSettings(memory_limit="64MB"))
    try:
        rows = "SELECT range AS i, repeat('x', 100) || range AS text FROM range(1000000)"
        database.connection.execute(f"CREATE TABLE t AS {rows}")
        folder = Path(database._instance.folder)
        assert list(folder.iterdir())  # the rows do not fit into its memory
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        database.release()
        duckdb_shared.close_idle()
    assert not folder.exists()
