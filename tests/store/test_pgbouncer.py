"""PgBouncer in transaction mode, configured or detected: sessions change between transactions."""

from __future__ import annotations

import asyncio
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import add_file
from tests.pgbouncer import PgBouncer, pgbouncer

import deltasql
from deltasql import aio
from deltasql.exceptions import StoreBusyError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri, Pooler

SCHEMA = pa.schema([("id", pa.int64())])
# A common setting that lets clients with options connect: PgBouncer drops the options.
DROPPING = "ignore_startup_parameters = options,extra_float_digits"
CASES: dict[str, tuple[str, Pooler | None]] = {
    "detected, refusing options": ("", None),
    "configured, dropping options": (DROPPING, "transaction"),
}


@pytest.fixture(scope="module", params=CASES)
def bouncer(request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    more, pooler = CASES[request.param]
    with pgbouncer(more=more, pooler=pooler) as running:
        yield running


@pytest.fixture
def pooled(bouncer: PgBouncer, postgres_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    uri = bouncer.uri(postgres_uri)
    with deltasql.connect(uri, create=True, table={"data_root": str(tmp_path / "lake")}) as catalog:
        yield catalog


def append(catalog: Catalog, *paths: str) -> None:
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(path) for path in paths])


def test_tables_are_in_the_schema_of_the_uri(pooled: Catalog) -> None:
    schema = pooled.uri.search_path
    with psycopg.connect(os.environ["TEST_DATABASE_URL"]) as admin:
        found = admin.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'dl_tables' "
            "AND schemaname IN ('public', %s)",
            [schema],
        ).fetchall()
    assert found == [(schema,)]


def test_writes_reads_and_deletes_work_from_many_threads(pooled: Catalog) -> None:
    pooled.create_table("t", SCHEMA)

    def write(number: int) -> None:
        with pooled.begin() as tx:
            tx.write("t", pa.table({"id": [number]}))
        assert pooled.table("t").version() > 0

    # More threads than server connections, each used often enough to prepare statements.
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, range(24)))
    assert pooled.table("t").version() == 24
    deltasql.DeltaTable(pooled.uri.with_table("t").to_string()).delete("id < 10")
    (rows,) = pooled.query("SELECT count(*) AS n FROM t").read_all().to_pylist()
    assert rows == {"n": 14}
    assert deltasql.DeltaTable(pooled.uri.with_table("t").to_string()).version() == 25


def test_many_files_are_committed_and_listed(pooled: Catalog) -> None:
    """Commits use COPY and lists use ADBC."""
    pooled.create_table("t", SCHEMA)
    append(pooled, *(f"file-{number}" for number in range(200)))
    at = {"table_id": 1, "version": 1, "first_file_id": 0, "next_file_id": 1_000}
    assert pooled.store.arrow("files_plain", **at).num_rows == 200


def test_async_reads_work_behind_pgbouncer(pooled: Catalog) -> None:
    pooled.create_table("t", SCHEMA)
    append(pooled, "a")

    async def version() -> int:
        async with aio.connect(pooled.uri) as catalog:
            return [await (await catalog.table("t")).version() for _ in range(4)][-1]

    assert asyncio.run(version()) == 1


def test_shared_sessions_keep_no_settings_or_prepared_statements(pooled: Catalog) -> None:
    pooled.create_table("t", SCHEMA)
    for number in range(8):
        append(pooled, f"file-{number}")
        pooled.table("t").version()
    uri = pooled.uri
    with psycopg.connect(
        host=uri.host, port=uri.port, dbname=uri.database, user=uri.user, autocommit=True
    ) as other:
        for _ in range(4):
            text = (
                "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE from_sql IS NOT NULL), "
                "current_setting('lock_timeout'), current_setting('search_path')"
            )
            found = other.execute(text, prepare=False).fetchone()
            assert found == (0, "0", '"$user", public')


def test_commit_blocked_by_a_lock_times_out_and_names_the_session(
    bouncer: PgBouncer, postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    name = f"deltasql {uuid.uuid4().hex[:8]}"
    with (
        deltasql.connect(
            bouncer.uri(postgres_uri, application_name=name),
            table={"data_root": str(tmp_path)},
            store={"lock_timeout_ms": 1_500},
        ) as catalog,
        psycopg.connect(os.environ["TEST_DATABASE_URL"]) as admin,
    ):
        catalog.create_table("t", SCHEMA)
        append(catalog, "first")
        admin.execute(f"SELECT FROM {postgres_uri.search_path}.dl_table_heads FOR UPDATE")
        with pytest.raises(StoreBusyError, match=f"session {admin.info.backend_pid} "):
            append(catalog, "a")
        admin.rollback()
        append(catalog, "a")
        assert catalog.table("t").version() == 2


def test_missing_schema_is_reported_on_connect(
    bouncer: PgBouncer, postgres_uri: DeltaSqlUri
) -> None:
    with pytest.raises(StoreUnavailableError, match=r"'missing_schema' .* does not exist"):
        deltasql.connect(bouncer.uri(postgres_uri, search_path="missing_schema"))


def test_session_mode_prepares_statements(postgres_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with pgbouncer(mode="session", pooler="none") as running:
        uri = running.uri(postgres_uri)
        with deltasql.connect(uri, table={"data_root": str(tmp_path)}) as catalog:
            catalog.create_table("t", SCHEMA)
            for number in range(6):
                append(catalog, f"file-{number}")
            with catalog.store.session() as session:
                connection = session._connection  # type: ignore[attr-defined]
                rows = connection.execute("SELECT count(*) > 0 FROM pg_prepared_statements")
                assert rows.fetchall() == [(True,)]
            assert catalog.table("t").version() == 6
