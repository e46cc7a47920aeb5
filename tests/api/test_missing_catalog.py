"""Every read of a catalog that does not exist raises an error and creates nothing."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import close_all, is_new, pending_migrations, shared
from deltasql.api.catalog.mirror import Mirror
from deltasql.api.inspect.inspector import Inspect
from deltasql.config import Config
from deltasql.exceptions import (
    CatalogNotFoundError,
    StoreUnavailableError,
    TxnLogTableNotFoundError,
    TxnLogUriError,
)
from tests.conftest import add_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2]})
# Arguments of the calls, by parameter name.
ARGUMENTS: dict[str, object] = {
    "actions": [add_file("a.parquet")],
    "checks": {"positive": "id > 0"},
    "column": "id",
    "columns": ["id"],
    "data_type": "long",
    "days": 1,
    "default": "1",
    "directory": "copy",
    "fields": deltasql.Field("more", "long"),
    "first": 0,
    "from_version": 0,
    "last": 1,
    "location": "/nowhere",
    "metadata": {"comment": "x"},
    "name": "t",
    "names": ["id"],
    "namespace": "default",
    "new_name": "u",
    "description": "x",
    "predicate": "t.id = s.id",
    "properties": {"delta.appendOnly": "true"},
    "source": ROWS,
    "sql": "SELECT 1",
    "statement": "DELETE FROM t",
    "table": "t",
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "to": 0,
    "txn_id": "none",
    "version": 0,
}
# Calls that create something, check existence or read nothing.
NO_READS = {
    Catalog: {
        *("create_namespace", "create_table", "follow", "import_table", "import_tables"),
        *("begin", "close", "exists"),
    },
    Mirror: {
        *("close", "flush"),
        *(
            "after_commit",
            "faults",
            "write_manifests",
        ),  # they need an argument that only a catalog provides
    },
    # The first two report a missing catalog instead of raising; `tell_files` is a deprecated alias.
    Inspect: {"check_database", "doctor", "tell_files"},
    deltasql.MultiTableTransaction: {
        *("create_missing", "create_table", "write", "write_rows"),
        *("commit", "creates", "has_table", "pin", "rollback"),
        *("set_commit_properties", "set_post_commit"),
    },
}


@pytest.fixture
def nothing(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """Return a function that checks that no catalog and no file was created."""
    yield lambda: is_new(catalog_uri) and [*tmp_path.iterdir()] == []
    close_all()


@pytest.mark.every_database
@pytest.mark.parametrize("kind", [Catalog, Mirror, Inspect, deltasql.MultiTableTransaction])
def test_every_reading_method_raises_and_creates_nothing(
    kind: type, catalog_uri: DeltaSqlUri, nothing: Callable[[], bool]
) -> None:
    names = {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }
    assert names >= NO_READS[kind]
    with deltasql.connect(catalog_uri) as catalog:
        for name in sorted(names - NO_READS[kind]):
            with pytest.raises(CatalogNotFoundError) as raised:
                called(method_of(kind, catalog, name))
            assert str(catalog_uri) in str(raised.value), name
            assert "deltasql init" in str(raised.value), name
            assert nothing(), name
        assert not catalog.exists("t")
        assert not catalog.begin().has_table("t")
        assert not catalog.inspect.doctor().ok
    assert nothing()


def method_of(kind: type, catalog: Catalog, name: str) -> Callable[..., Any]:
    if kind is Mirror:
        return getattr(catalog.mirror, name)  # type: ignore[no-any-return]
    if kind is Inspect:
        return getattr(catalog.inspect, name)  # type: ignore[no-any-return]
    return getattr(catalog if kind is Catalog else catalog.begin(), name)  # type: ignore[no-any-return]


def called(method: Callable[..., Any]) -> object:
    """Call a method with its required arguments and run a lazy result."""
    parameters = inspect.signature(method).parameters.values()
    required = {each.name for each in parameters if each.default is each.empty}
    required -= {each.name for each in parameters if each.kind is each.VAR_KEYWORD}
    if method.__name__ == "run":
        return method(threading.Event(), once=True)
    if method.__name__ == "clone":  # its source is a table
        return method("t", "u")
    result = method(**{name: ARGUMENTS[name] for name in required})
    if method.__name__ == "merge":
        return result.when_matched_update_all().execute()
    return result


@pytest.mark.every_database
def test_every_reading_function_raises_and_creates_nothing(
    catalog_uri: DeltaSqlUri, nothing: Callable[[], bool], tmp_path: Path
) -> None:
    table = catalog_uri.with_table("t").to_string()
    calls: dict[str, Callable[[], object]] = {
        "DeltaTable": lambda: deltasql.DeltaTable(table),
        "DeltaTable at a version": lambda: deltasql.DeltaTable(table, version=0),
        "export": lambda: deltasql.export_table(table, str(tmp_path / "copy")),
        "mirror_duckdb": lambda: deltasql.mirror_duckdb(catalog_uri, tmp_path / "views.duckdb"),
        "begin and read": lambda: read_in_transaction(catalog_uri),
        "aio tables": lambda: asyncio.run(tables(catalog_uri)),
        "aio read": lambda: asyncio.run(read(catalog_uri)),
        "deltalake's class": lambda: read_registered(table),
        "pending migrations": lambda: pending_migrations(catalog_uri),
        "dry run": lambda: dry_run_in(catalog_uri, tmp_path),
    }
    for name, call in calls.items():
        with pytest.raises(CatalogNotFoundError, match="there is no catalog yet") as raised:
            call()
        assert isinstance(raised.value, TxnLogTableNotFoundError)
        assert isinstance(raised.value, deltalake.exceptions.TableNotFoundError)
        assert pickle.loads(pickle.dumps(raised.value)).catalog == str(catalog_uri)
        assert nothing(), name
    assert not deltasql.DeltaTable.is_deltatable(table)
    assert not asyncio.run(exists(catalog_uri))
    assert nothing()


def read_in_transaction(uri: DeltaSqlUri) -> None:
    with deltasql.begin(uri) as tx:
        tx.read("t")


async def tables(uri: DeltaSqlUri) -> object:
    async with deltasql.aio.connect(uri) as catalog:
        return await catalog.tables()


async def read(uri: DeltaSqlUri) -> object:
    async with deltasql.aio.connect(uri) as catalog:
        return await catalog.table("t")


async def exists(uri: DeltaSqlUri) -> bool:
    async with deltasql.aio.connect(uri) as catalog:
        return await catalog.exists("t")


def read_registered(table: str) -> object:
    deltasql.register()
    try:
        return deltalake.DeltaTable(table)
    finally:
        deltasql.unregister()


def dry_run_in(uri: DeltaSqlUri, folder: Path) -> object:
    source = folder.parent / f"{folder.name}-source"
    deltalake.write_deltalake(source, ROWS)
    with deltasql.connect(uri) as catalog:
        return catalog.import_table(str(source), dry_run=True)


@pytest.mark.every_database
def test_every_creating_call_creates_the_catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "source", ROWS)
    source, place = str(tmp_path / "source"), str(tmp_path / "new")
    table = replace(catalog_uri, table="t", location=place)
    calls: dict[str, Callable[[Catalog], object]] = {
        "create_table": lambda c: c.create_table("t", ROWS.schema, location=place),
        "create_namespace": lambda c: c.create_namespace("crm"),
        "import_table": lambda c: c.import_table(source),
        "import_tables": lambda c: c.import_tables(str(tmp_path)),
        "follow": lambda c: c.follow(source),
        "rebuild": lambda c: deltasql.rebuild(c, source),
        "rebuild by URI": lambda c: deltasql.rebuild(catalog_uri, source),
        "write": lambda c: deltasql.write_deltalake(table.to_string(), ROWS),
        "begin": lambda c: write_in_transaction(catalog_uri, place),
        "create": lambda c: deltasql.connect(catalog_uri, create=True).close(),
        "aio": lambda c: asyncio.run(create(catalog_uri, place)),
    }
    # Creating a catalog takes half a second on DuckDB: only one call per kind of connection runs.
    chosen = calls if catalog_uri.backend == "sqlite" else ("create_table", "begin", "aio")
    for name in chosen:
        with deltasql.connect(catalog_uri) as catalog:
            calls[name](catalog)
            assert not is_new(catalog_uri), name
            assert catalog.health().ok, name
            catalog.tables()
        close_all()
        remove(catalog_uri, tmp_path)


def write_in_transaction(uri: DeltaSqlUri, place: str) -> None:
    with deltasql.begin(uri) as tx:
        tx.write("t", ROWS, location=place)
        with deltasql.begin(uri) as other:  # a second transaction must not close the open catalog
            assert not other.has_table("t")


async def create(uri: DeltaSqlUri, place: str) -> object:
    async with deltasql.aio.connect(uri) as catalog:
        return await catalog.create_table("t", ROWS.schema, location=place)


def remove(uri: DeltaSqlUri, folder: Path) -> None:
    """Delete the catalog and keep the source table."""
    if uri.backend == "postgres":
        import psycopg

        with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {uri.search_path} CASCADE")
            connection.execute(f"CREATE SCHEMA {uri.search_path}")
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
        elif path.name != "source":
            shutil.rmtree(path)


def test_rejected_write_creates_no_catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    table = replace(catalog_uri, table="t", location=str(tmp_path / "typo")).to_string()
    calls: dict[str, Callable[[], object]] = {
        "import_table": lambda: deltasql.import_table(str(tmp_path / "typo"), catalog_uri),
        "import_tables": lambda: deltasql.import_tables(str(tmp_path / "typo"), catalog_uri),
        "convert": lambda: deltasql.convert_to_deltalake(table),
        "write": lambda: deltasql.write_deltalake(table, 3),  # type: ignore[arg-type]
        "append": lambda: deltasql.DeltaTable.create(table, ROWS.schema, mode="nothing"),  # type: ignore[arg-type]
    }
    for name, call in calls.items():
        with pytest.raises(deltasql.exceptions.TxnLogError):
            call()
        assert [*tmp_path.iterdir()] == [], name
    close_all()


def test_dry_runs_work_without_a_catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "source", ROWS)
    found = deltasql.rebuild(catalog_uri, str(tmp_path / "source"), dry_run=True)
    assert [each.state for each in found.tables] == ["would load"]
    report = deltasql.import_table(str(tmp_path / "source"), catalog_uri, dry_run=True)
    assert report.state == "would import"
    assert is_new(catalog_uri)
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


@pytest.mark.every_database
def test_catalog_created_by_another_connection_is_found_by_the_next_call(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with deltasql.connect(catalog_uri) as waiting:
        with pytest.raises(CatalogNotFoundError):
            waiting.tables()
        with deltasql.connect(catalog_uri) as other:
            other.create_table("t", ROWS.schema, location=str(tmp_path / "t"))
        assert [each.name for each in waiting.tables()] == ["t"]


@pytest.mark.every_database
def test_concurrent_first_writers_create_one_catalog(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    start = threading.Barrier(4)

    def write(number: int) -> None:
        with deltasql.connect(catalog_uri) as catalog, catalog.begin() as tx:
            start.wait()
            tx.write(f"t{number}", ROWS, location=str(tmp_path / f"t{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    with deltasql.connect(catalog_uri) as catalog:
        assert {each.name for each in catalog.tables()} == {"t0", "t1", "t2", "t3"}


def test_shared_catalog_is_reopened_after_its_file_was_deleted(sqlite_uri: DeltaSqlUri) -> None:
    config = Config.load()
    first = shared(sqlite_uri, config)
    assert shared(sqlite_uri, config) is first
    with deltasql.begin(sqlite_uri) as tx:
        tx.write("t", ROWS)
    assert shared(sqlite_uri, config) is first
    Path(sqlite_uri.database).unlink()
    assert shared(sqlite_uri, config) is not first
    with pytest.raises(CatalogNotFoundError):
        shared(sqlite_uri, config).tables()
    close_all()


def test_error_names_the_missing_folder(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/typo/meta.db"
    with deltasql.connect(uri) as catalog:
        with pytest.raises(CatalogNotFoundError, match=f"The folder {tmp_path}/typo does not"):
            catalog.tables()
        assert not (tmp_path / "typo").exists()
        catalog.create_namespace("crm")  # creates folder, file and catalog
        assert catalog.namespaces() == ["crm"]


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
def test_database_that_cannot_be_created_raises_store_unavailable(
    backend: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    uri = f"deltasql://{backend}/{tmp_path}/file/meta.db"
    with (
        closing(deltasql.connect(uri)) as catalog,
        pytest.raises(StoreUnavailableError, match=r"cannot create the \w+ database"),
    ):
        catalog.create_namespace("crm")


@pytest.mark.parametrize("call", [deltasql.connect, deltasql.begin])
@pytest.mark.parametrize("given", [None, "", 5])
def test_catalog_argument_that_is_not_a_string_is_rejected_with_its_type(
    call: Any, given: Any
) -> None:
    with pytest.raises(TxnLogUriError, match="must be a URI or a name, but the argument is an"):
        call(given)
