"""One class decides which data may be deleted, and every deletion uses it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.storage import open_storage
from deltasql.storage.deletion import Deletable, delete_data
from deltasql.storage.location import location_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.storage import Storage

PACKAGE = Path(deltasql.__file__).parent
# Methods that only files have; methods that other objects have too; and receivers that are no
# files.
OF_FILES = {"delete_many", "unlink", "rmtree", "rmdir", "removedirs"}
OF_FILES_TOO = {"delete", "rename"}
NO_FILES = {"catalog", "registry", "tables", "tx"}
# Code that may delete or move a file, and which file. Only one entry deletes data files.
CALLERS = {
    "storage/deletion.py::delete_data": "data files, of those that `Deletable` allows",
    "storage/local.py": "what the interface does on a disk",
    "storage/local_files.py": "files that have no name yet",
    "storage/object_store.py": "what the interface does in an object store",
    "engine/spark/write.py::_Written.of": "renames a file that Spark has just written",
    "operations/external_writes/files.py::_in_partition_folder": "renames a new file",
    "engine/spark/file_index.py::_send_as_file": "a temporary file",
    "serve/service_file.py::write_service_file": "a service file, which is replaced",
    "serve/service.py::Service.stop": "the service file",
    "spark/catalog.py::_stop": "the temporary folder of a service file",
    "engine/duckdb/connection.py::temporary_database": "a temporary folder of DuckDB",
    "engine/duckdb/connection.py::_start": "a temporary folder of DuckDB",
    "engine/duckdb/connection.py::_close": "a temporary folder of DuckDB",
    "mirror/log/backup.py": "log files that are moved to the backup folder",
    "mirror/log/cleanup.py::clean_log": "expired files of `_delta_log`",
    "verify/repair.py": "damaged files of `_delta_log`",
    "mirror/publish/symlink_manifest.py::write_manifests": "files of `_symlink_format_manifest`",
    "mirror/duckdb/refresh.py::refresh": "a database of views that was replaced",
    "migrate/exporting/export.py::_Export.run": "the note of an export in its target",
}


def callers(path: Path) -> Iterator[str]:
    """Yield the functions of a module that call something that deletes or moves a file."""

    def visit(node: ast.AST, inside: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{inside}.{child.name}" if inside else child.name
            if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
                receiver, method = ast.unparse(child.func.value), child.func.attr
                of_os = receiver == "os" and method in ("remove", "replace", "truncate")
                too = method in OF_FILES_TOO and receiver not in NO_FILES
                if method in OF_FILES or of_os or too:
                    yield name
            yield from visit(child, name)

    return visit(ast.parse(path.read_text("utf-8")), "")


def test_every_data_deletion_goes_through_delete_data() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {f"{module}::{name}" for module, path in modules.items() for name in callers(path)}
    found = {each if each in CALLERS else each.partition("::")[0] for each in found}
    assert found == set(CALLERS), "delete data by deltasql.storage.deletion.delete_data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    for name in (
        "part.parquet",
        "_p=1/part.parquet",
        "_change_data/part.parquet",
        "ab/deletion_vector_1.bin",
        "_delta_log/00000000000000000000.json",
        "_delta_log/_sidecars/s.parquet",
        "_hidden/part.parquet",
        "_q=1/part.parquet",
        ".part.parquet.crc",
        "a/_part.parquet",
        "foreign/part.parquet",
        "foreign/_delta_log/00000000000000000000.json",
        "foreign/p=1/part.parquet",
        "known/part.parquet",
        "knownot/part.parquet",
        "meta.db",
        "meta.db-wal",
        "meta.db-queue",
        "meta.dbx",
        "run/_SUCCESS",
        "run/_temporary/0/part.parquet",
        "run/_delta_log/0.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/part.parquet").write_bytes(b"x")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "round").symlink_to(folder / "a")
    return folder


def names(root: Path) -> set[str]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix() for path in found}


@pytest.mark.parametrize("through_link", [False, True])
def test_only_files_of_the_table_are_deleted(
    root: Path, tmp_path: Path, through_link: bool
) -> None:
    place = root
    if through_link:
        place = tmp_path / "to t"
        place.symlink_to(root)
    storage = open_storage(str(place))
    deletable = Deletable(
        storage,
        partition_columns=["_p"],
        others=[location_key(str(root / "known")), location_key(str(tmp_path / "outside"))],
        databases=[str(root / "meta.db")],
    )
    wanted = [*names(root), "link/part.parquet", "round/_part.parquet", "../outside/part.parquet"]
    wanted += ["/etc/passwd", "a/../part.parquet", "_delta_log", "round/part.parquet", ""]
    gone = delete_data(storage, wanted, deletable)
    assert set(gone) == {
        "part.parquet",
        "_p=1/part.parquet",
        "_change_data/part.parquet",
        "ab/deletion_vector_1.bin",
        "knownot/part.parquet",
        "meta.dbx",
    }
    assert not set(gone) & names(root)
    assert (tmp_path / "outside/part.parquet").exists()


def test_hidden_files_are_deleted_only_in_engine_folders(root: Path) -> None:
    storage = open_storage(str(root))
    deletable = Deletable(storage, partition_columns=None, engine_folders=["run/"])
    wanted = ["run/_SUCCESS", "run/_temporary/0/part.parquet", "run/_delta_log/0.json"]
    assert (
        delete_data(storage, [*wanted, "_hidden/part.parquet"], deletable) == []
    )  # the folder contains a log
    (root / "run/_delta_log/0.json").unlink()
    (root / "run/_delta_log").rmdir()
    deletable = Deletable(storage, partition_columns=None, engine_folders=["run/"])
    assert delete_data(storage, [*wanted, "_hidden/part.parquet"], deletable) == wanted[:2]


def test_log_files_reached_through_a_symbolic_link_are_not_deleted(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "t"))
    for name in ("log/0.json", "f"):
        storage.put(name, b"1")
    (tmp_path / "t/_delta_log").symlink_to("log")
    deletable = Deletable(storage)
    assert deletable.allowed(["log/0.json", "f"]) == ["f"]
    assert "symbolic link" in (deletable.reason_against("log/0.json") or "")


def test_files_of_other_tables_in_an_object_store_are_not_deleted(
    s3_storage: Storage,
) -> None:
    own = ["f.parquet", "p=1/f.parquet", "p=2/q=1/f.parquet", "_change_data/p=1/f.parquet"]
    others = ["in/f.parquet", "in/p=1/f.parquet", "in/_delta_log/0.json", "_delta_log/0.json"]
    for name in (*own, *others, "known/f.parquet"):
        s3_storage.put(name, b"1")
    known = location_key(f"{s3_storage.location}/known".replace("s3://", "s3a://"))
    deletable = Deletable(s3_storage, others=[known])
    assert delete_data(s3_storage, [*own, *others, "known/f.parquet"], deletable) == own
    left = [each.name for each in s3_storage.list()]
    assert sorted(left) == sorted([*others, "known/f.parquet"])
