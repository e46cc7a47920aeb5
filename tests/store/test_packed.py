"""Lists that PostgreSQL packs into whole columns: the same as its rows, without another driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import add_file

import deltasql
from deltasql.model.actions import DeletionVector, RemoveFile
from deltasql.snapshot.files import SCHEMAS
from deltasql.store import postgres, postgres_packed
from deltasql.store.postgres import PostgresDialect, conninfo
from deltasql.store.postgres_packed import read_packed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FILES = 9_000  # more than a page
VECTOR = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 4, 40, 1)


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with deltasql.connect(postgres_uri, mirror={"mode": "off"}) as opened:
        yield opened


@pytest.fixture
def table(catalog: Catalog, tmp_path: Path) -> str:
    """Version 1 adds many files, 2 removes a few, 3 adds odd ones."""
    catalog.create_table(
        "t",
        pa.schema([("id", pa.int64())]),
        location=str(tmp_path),
        properties={"delta.enableDeletionVectors": "true"},
    )
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(f"part-{number}", 0, number) for number in range(FILES)])
    with catalog.begin() as tx:
        tx.stage_table("t", [RemoveFile(f"part-{number}") for number in (0, 17, 8191, 8192)])
    odd = [
        replace(add_file("odd", stats=None), path="größe=😀,a"),
        add_file("with-vector", 1, 2, deletion_vector=VECTOR),
    ]
    with catalog.begin() as tx:
        tx.stage_table("t", odd)
    return "t"


def asked(catalog: Catalog, version: int | None = None, **others: int) -> dict[str, int]:
    snapshot = catalog.table("t").snapshot(version)
    return {
        "table_id": snapshot.table.table_id,
        "version": snapshot.version,
        "first_file_id": 0,
        "next_file_id": snapshot.next_file_id,
    } | others


def adbc(catalog: Catalog) -> Any:
    dialect = catalog.store.dialect
    assert isinstance(dialect, PostgresDialect)
    return dialect._arrow_connection


@pytest.mark.parametrize("name", ["files_brief", "files_plain", "files_to_read"])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_columns_are_those_of_the_rows(
    catalog: Catalog, table: str, name: str, version: int
) -> None:
    spans = ({}, {"first_file_id": 18}, {"next_file_id": 8192}, {"first_file_id": 20_000})
    for span in spans:
        params = asked(catalog, version, **span)
        found = catalog.store.arrow(name, **params)
        found.validate(full=True)
        assert found.schema == SCHEMAS.get(name, found.schema)
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert rows == catalog.store.query(name, **params)
    assert adbc(catalog) is None


def test_a_list_is_the_same_when_an_encoding_is_changed(
    catalog: Catalog, table: str, postgres_uri: DeltaSqlUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = catalog.table(table).snapshot(2).file_paths()
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with deltasql.connect(postgres_uri) as other:
        assert other.table(table).snapshot(2).file_paths() == wanted
        assert adbc(other) is not None


def test_a_long_list_is_the_same_by_the_other_driver(
    catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = asked(catalog)
    wanted = catalog.store.arrow("files_brief", **params)
    assert adbc(catalog) is None
    monkeypatch.setattr(postgres_packed, "_MOST_FILES", FILES)
    assert catalog.store.arrow("files_brief", **params) == wanted
    assert adbc(catalog) is not None


def test_a_checkpoint_of_plain_files_needs_no_other_driver(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_table("t", pa.schema([("id", pa.int64())]), location=str(tmp_path))
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(f"part-{number}", 0, number) for number in range(FILES)])
    catalog.mirror.publish("t")
    catalog.mirror.checkpoint("t")
    assert adbc(catalog) is None
    found = pq.read_table(next((tmp_path / "_delta_log").glob("*.checkpoint.parquet")))
    assert found.num_rows == FILES + 2  # with protocol and metadata
    [report] = catalog.mirror.verify("t")
    assert report.ok, report.summary()


def test_what_is_too_long_to_be_packed_is_read_by_the_other_driver(
    catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = asked(catalog)
    wanted = catalog.store.arrow("files_plain", **params)

    def refuse(*args: object) -> None:
        raise psycopg.errors.ProgramLimitExceeded("string buffer exceeds maximum allowed length")

    monkeypatch.setattr(postgres, "read_packed", refuse)
    found = catalog.store.arrow("files_plain", **params)
    assert adbc(catalog) is not None
    assert found.cast(wanted.schema) == wanted


def test_a_list_is_read_anew_when_the_connection_died(
    catalog: Catalog, table: str, postgres_uri: DeltaSqlUri
) -> None:
    params = asked(catalog)
    wanted = catalog.store.arrow("files_brief", **params)
    with catalog.store.session() as session:
        pid = session._connection.info.backend_pid  # type: ignore[attr-defined]
    with psycopg.connect(conninfo(postgres_uri, catalog.config)) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    assert catalog.store.arrow("files_brief", **params) == wanted


def test_a_refusal_is_the_servers_and_the_connection_goes_on(
    catalog: Catalog, table: str, postgres_uri: DeltaSqlUri
) -> None:
    params = asked(catalog)
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as connection:
        connection.execute("SET statement_timeout = 1")
        with pytest.raises(psycopg.errors.QueryCanceled):
            read_packed(connection, "packed_files_brief", params)
        connection.execute("SET statement_timeout = 0")
        assert len(read_packed(connection, "packed_files_brief", params)) == FILES - 2


def test_a_cold_list_loads_neither_pandas_nor_another_driver(
    catalog: Catalog, table: str, postgres_uri: DeltaSqlUri
) -> None:
    script = (
        "import json, sys, deltasql\n"
        f"catalog = deltasql.connect({postgres_uri.to_string()!r})\n"
        "files = catalog.table('t').snapshot().file_paths()\n"
        "print(json.dumps([len(files), sorted(sys.modules)]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, env=os.environ
    )
    count, modules = json.loads(answer.stdout)
    assert count == FILES - 2
    assert not {"pandas", "adbc_driver_postgresql", "adbc_driver_manager"} & set(modules)
