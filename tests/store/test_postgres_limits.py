"""Every wait for PostgreSQL has a limit, and the error names the session that holds the lock."""

from __future__ import annotations

import os
import signal
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import add_file

import deltasql
from deltasql.exceptions import StoreBusyError, StoreUnavailableError
from deltasql.store.dialect import Fault
from deltasql.store.postgres import connection as postgres_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])
# Half of the lock timeout is left to look up the lock holder, even on a busy machine.
LOCK_MS, STATEMENT_MS = 3_000, 300
# Three waits for a lock, the backoff between them, and a margin for a busy machine.
IN_TIME_S = 3 * LOCK_MS / 1000 + 3


@contextmanager
def opened(uri: DeltaSqlUri, folder: Path, **store: Any) -> Iterator[Catalog]:
    with deltasql.connect(
        uri, mirror={"mode": "off"}, table={"data_root": str(folder)}, store=store
    ) as catalog:
        catalog.create_table("t", SCHEMA, if_exists="ignore")
        yield catalog


@pytest.fixture
def admin(postgres_uri: DeltaSqlUri) -> Iterator[psycopg.Connection[Any]]:
    """A session in the schema of the catalog, as another program would have."""
    with psycopg.connect(
        os.environ["TEST_DATABASE_URL"], autocommit=True, application_name="a long report"
    ) as connection:
        connection.execute(f"SET search_path = {postgres_uri.search_path}")
        yield connection


def append(catalog: Catalog, *paths: str) -> None:
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(path) for path in paths])


def slow_heads(admin: psycopg.Connection[Any], seconds: float, *, times: int) -> None:
    """Make the first few updates of a head slow."""
    admin.execute("CREATE SEQUENCE moves")
    admin.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF nextval('moves') <= {times} THEN PERFORM pg_sleep({seconds}); END IF; "
        "RETURN NEW; END $$"
    )
    admin.execute(
        "CREATE TRIGGER slow BEFORE UPDATE ON dl_table_heads FOR EACH ROW EXECUTE FUNCTION slow()"
    )


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(("a",), id="one file"),
        pytest.param(
            ("a", "b"), id="two files", marks=pytest.mark.everything("waits for the same locks")
        ),
    ],
)
def test_blocked_commit_times_out_and_names_the_lock_holder(
    postgres_uri: DeltaSqlUri,
    tmp_path: Path,
    admin: psycopg.Connection[Any],
    paths: tuple[str, ...],
) -> None:
    with opened(postgres_uri, tmp_path, lock_timeout_ms=LOCK_MS) as catalog:
        append(catalog, "first")
        with admin.transaction():
            admin.execute("SELECT FROM dl_table_heads FOR UPDATE")
            began = time.monotonic()
            holder = f"session {admin.info.backend_pid} .*application a long report.*idle in trans"
            with pytest.raises(StoreBusyError, match=holder):
                append(catalog, *paths)
            assert LOCK_MS / 1000 <= time.monotonic() - began < IN_TIME_S
        append(catalog, *paths)
        assert catalog.table("t").version() == 2


def test_blocked_rename_times_out_and_names_the_lock_holder(
    postgres_uri: DeltaSqlUri, tmp_path: Path, admin: psycopg.Connection[Any]
) -> None:
    with opened(postgres_uri, tmp_path, lock_timeout_ms=LOCK_MS) as catalog:
        with admin.transaction():
            admin.execute("SELECT FROM dl_table_heads FOR UPDATE")
            with pytest.raises(StoreBusyError, match=f"session {admin.info.backend_pid} "):
                catalog.rename("t", "u")
        catalog.rename("t", "u")


def test_blocked_reads_time_out_and_name_the_lock_holder(
    postgres_uri: DeltaSqlUri, tmp_path: Path, admin: psycopg.Connection[Any]
) -> None:
    """Includes reads through ADBC."""
    at = {"table_id": 1, "version": 1, "first_file_id": 0, "next_file_id": 10}
    with opened(postgres_uri, tmp_path, lock_timeout_ms=LOCK_MS) as catalog:
        append(catalog, "a")
        assert catalog.store.arrow("files_plain", **at).num_rows == 1
        with admin.transaction():
            admin.execute("LOCK TABLE dl_add_files")
            holder = f"session {admin.info.backend_pid} .*a long report"
            with pytest.raises(StoreBusyError, match=holder):
                catalog.store.query("live_totals", table_id=1, version=1)
            with pytest.raises(StoreBusyError, match=holder):
                catalog.store.arrow("files_plain", **at)
        assert catalog.store.arrow("files_plain", **at).num_rows == 1


def test_commit_is_retried_after_a_statement_timeout(
    postgres_uri: DeltaSqlUri, tmp_path: Path, admin: psycopg.Connection[Any]
) -> None:
    with opened(postgres_uri, tmp_path, statement_timeout_ms=STATEMENT_MS) as catalog:
        append(catalog, "first")
        slow_heads(admin, 30, times=2)
        append(catalog, "a")
        assert catalog.table("t").version() == 2


def test_repeated_statement_timeouts_raise_store_busy(
    postgres_uri: DeltaSqlUri, tmp_path: Path, admin: psycopg.Connection[Any]
) -> None:
    with opened(postgres_uri, tmp_path, statement_timeout_ms=STATEMENT_MS) as catalog:
        append(catalog, "first")
        slow_heads(admin, 30, times=1_000)
        for paths in (("a",), ("a", "b")):
            with pytest.raises(StoreBusyError, match="statement timeout"):
                append(catalog, *paths)
        admin.execute("DROP TRIGGER slow ON dl_table_heads")
        append(catalog, "a")
        assert catalog.table("t").version() == 2


def test_bulk_commits_and_reads_have_their_own_timeout(
    postgres_uri: DeltaSqlUri, tmp_path: Path, admin: psycopg.Connection[Any]
) -> None:
    with opened(
        postgres_uri, tmp_path, statement_timeout_ms=STATEMENT_MS, bulk_timeout_ms=20_000
    ) as catalog:
        slow_heads(admin, 2 * STATEMENT_MS / 1000, times=1)
        append(catalog, *(f"file-{number}" for number in range(64)))
        assert admin.execute("SELECT last_value FROM moves").fetchone() == (1,)
        assert catalog.table("t").version() == 1
        with catalog.store.session() as session:
            session.begin()
            assert session._connection.execute("SHOW statement_timeout").fetchone() == ("300ms",)  # type: ignore[attr-defined]
    admin.execute("ALTER TABLE dl_add_files RENAME TO files")
    admin.execute("CREATE VIEW dl_add_files AS SELECT f.* FROM files f, pg_sleep(30)")
    at = {"table_id": 1, "version": 1, "first_file_id": 0, "next_file_id": 10}
    with (
        opened(postgres_uri, tmp_path, bulk_timeout_ms=STATEMENT_MS) as catalog,
        # The timeout is reported while rows are fetched.
        pytest.raises(StoreBusyError, match="statement timeout"),
    ):
        catalog.store.arrow("files_plain", **at)


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ({}, ("7s", "5min", "1min")),
        ({"lock_timeout_ms": 9_000, "statement_timeout_ms": 0}, ("9s", "0", "1min")),
    ],
    ids=["defaults", "configured"],
)
def test_role_timeout_overrides_the_default_and_config_overrides_both(
    postgres_uri: DeltaSqlUri, tmp_path: Path, store: dict[str, int], expected: tuple[str, ...]
) -> None:
    role = f"limited_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{role}'")
        admin.execute(f"ALTER ROLE {role} SET lock_timeout = '7s'")
        try:
            uri = replace(postgres_uri, user=role, password=role)
            with opened(uri, tmp_path, **store) as catalog, catalog.store.session() as session:
                shown = tuple(
                    session._connection.execute(f"SHOW {name}").fetchone()[0]  # type: ignore[attr-defined]
                    for name in (
                        "lock_timeout",
                        "statement_timeout",
                        "idle_in_transaction_session_timeout",
                    )
                )
            assert shown == expected
        finally:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")


def test_connection_to_a_hung_server_process_is_replaced(
    postgres_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_limits, "_GRACE_S", 0.2)
    with opened(postgres_uri, tmp_path, statement_timeout_ms=STATEMENT_MS) as catalog:
        with catalog.store.session() as session:
            pid = session._connection.info.backend_pid  # type: ignore[attr-defined]
        try:
            os.kill(pid, signal.SIGSTOP)
        except (PermissionError, ProcessLookupError):
            pytest.skip("the server runs elsewhere")
        try:
            began = time.monotonic()
            assert [table.name for table in catalog.tables()] == ["t"]  # on another connection
            assert time.monotonic() - began < 5
        finally:
            os.kill(pid, signal.SIGCONT)


def test_missing_schema_is_reported_when_the_catalog_is_opened(
    postgres_uri: DeltaSqlUri, admin: psycopg.Connection[Any]
) -> None:
    schema = f"new_{uuid.uuid4().hex[:12]}"
    uri = replace(postgres_uri, search_path=schema)
    with pytest.raises(StoreUnavailableError, match=rf"schema '{schema}' .* does not exist"):
        deltasql.connect(uri)
    admin.execute(f"CREATE SCHEMA {schema}")
    try:
        with deltasql.connect(uri, create=True) as catalog:
            assert catalog.tables() == []
    finally:
        admin.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("55P03", Fault.BUSY),
        ("57014", Fault.BUSY),
        ("25P03", Fault.LOST),
        ("40P01", Fault.RETRY),
    ],
)
def test_errors_are_classified_by_sqlstate(
    postgres_uri: DeltaSqlUri, tmp_path: Path, state: str, fault: Fault
) -> None:
    with opened(postgres_uri, tmp_path) as catalog:
        error = psycopg.errors.lookup(state)("some text in any language")
        assert catalog.store.classify(error) is fault
