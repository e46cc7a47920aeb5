"""File lists read as rows or as Arrow are equal; ADBC is loaded only for many files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import add_file

import deltasql
from deltasql.model.actions import DeletionVector, RemoveFile
from deltasql.snapshot.files import COLUMNS, from_arrow, from_rows, to_arrow
from deltasql.store.postgres.dialect import PostgresDialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FILES = 9_000
VECTOR = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 4, 40, 1)


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    # One test closes all connections with this name; other processes must not have it.
    name = f"deltasql-{uuid.uuid4().hex[:12]}"
    with deltasql.connect(
        postgres_uri, create=True, mirror={"mode": "off"}, store={"application_name": name}
    ) as opened:
        yield opened


@pytest.fixture
def table(catalog: Catalog, tmp_path: Path) -> str:
    """Version 1 adds many files, 2 removes a few, 3 adds files with unusual values."""
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


def parameters(catalog: Catalog, version: int | None = None) -> dict[str, int]:
    snapshot = catalog.table("t").snapshot(version)
    return {
        "table_id": snapshot.table.table_id,
        "version": snapshot.version,
        "first_file_id": 1,
        "next_file_id": snapshot.next_file_id,
    }


def adbc(catalog: Catalog) -> Any:
    dialect = catalog.store.dialect
    assert isinstance(dialect, PostgresDialect)
    return dialect._arrow_reader._connection


@pytest.mark.parametrize("columns", list(COLUMNS))
def test_rows_and_arrow_give_the_same_file_list(catalog: Catalog, table: str, columns: str) -> None:
    for version in range(4):
        at = parameters(catalog, version)
        many = from_arrow(catalog.store.arrow(columns, **at), columns)
        many.validate(full=True)
        assert to_arrow(from_rows(catalog.store.query(columns, **at), columns)).equals(many)
    assert adbc(catalog) is not None


def test_arrow_read_is_retried_after_a_lost_connection(catalog: Catalog, table: str) -> None:
    at = parameters(catalog)
    wanted = catalog.store.arrow("files_brief", **at)
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = %s",
            [catalog.config.store.application_name],
        )
    assert catalog.store.arrow("files_brief", **at).equals(wanted)


def test_checkpoint_of_few_files_does_not_load_adbc(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", pa.schema([("id", pa.int64())]), location=str(tmp_path))
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(f"part-{number}", 0, number) for number in range(FILES)])
    catalog.mirror.publish("t")
    catalog.mirror.checkpoint("t")
    assert adbc(catalog) is None
    found = pq.read_table(next((tmp_path / "_delta_log").glob("*.checkpoint.parquet")))
    assert found.num_rows == FILES + 2  # plus protocol and metadata
    [report] = catalog.mirror.verify("t")
    assert report.ok, report.summary()


def test_first_list_of_few_files_loads_neither_pandas_nor_adbc(
    catalog: Catalog, table: str, postgres_uri: DeltaSqlUri
) -> None:
    script = (
        "import json, sys, deltasql\n"
        f"catalog = deltasql.connect({postgres_uri.to_string()!r})\n"
        "files = catalog.table('t').snapshot().file_paths()\n"
        "print(json.dumps([len(files), sorted(sys.modules)]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, env=os.environ
    )
    count, modules = json.loads(answer.stdout)
    assert count == FILES - 2
    assert not {"pandas", "adbc_driver_postgresql", "adbc_driver_manager"} & set(modules)
    assert answer.stderr == b""  # a pool that was not closed logs nothing at exit
