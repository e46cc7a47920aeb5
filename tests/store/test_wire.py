"""What is spoken to libpq itself: values of every kind, refusals, lost connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

import deltasql
from deltasql.store import postgres_wire
from deltasql.store.dialect import Fault
from deltasql.store.postgres import conninfo
from deltasql.store.postgres_wire import ask
from deltasql.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

Connection = psycopg.Connection[Any]
NAME = "table_and_head"


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class Number:
    """A whole number that is none of Python's."""

    def __index__(self) -> int:
        return 7

    __int__ = __index__


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with deltasql.connect(postgres_uri) as opened:
        yield opened


@pytest.fixture
def connection(catalog: Catalog, postgres_uri: DeltaSqlUri) -> Iterator[Connection]:
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as opened:
        yield opened


def prepared(connection: Connection) -> int:
    rows = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
    return sum(name.startswith("deltasql") for (name,) in rows)


def test_rows_are_those_of_a_cursor(
    catalog: Catalog, connection: Connection, tmp_path: Path
) -> None:
    catalog.create_table("größe", pa.schema([("id", pa.int64())]), location=str(tmp_path))
    text = statement(NAME, "postgres").replace("$live_name", "%s")
    wanted = connection.execute(text, ["default/größe"]).fetchall()  # type: ignore[arg-type]
    assert len(wanted) == 1
    for times in range(3):  # as text, prepared, and by what is prepared
        assert ask(connection, NAME, {"live_name": "default/größe"}) == wanted
        assert prepared(connection) == min(times, 1)
    assert ask(connection, NAME, {"live_name": Text("default/größe")}) == wanted
    assert ask(connection, NAME, {"live_name": "default/other"}) == []


def test_nulls_make_it_another_statement(connection: Connection) -> None:
    for _ in range(3):
        assert ask(connection, NAME, {"live_name": "default/t"}) == []
        assert ask(connection, NAME, {"live_name": None}) == []
    assert prepared(connection) == 2


def test_only_so_many_are_prepared(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_wire, "_MOST_PREPARED", 1)
    for _ in range(3):
        assert ask(connection, NAME, {"live_name": "default/t"}) == []
        assert ask(connection, NAME, {"live_name": None}) == []
    assert prepared(connection) == 1


def test_notes_of_every_kind_of_value(catalog: Catalog, connection: Connection) -> None:
    paths = ['/lake/"a" \\ b', "/lake/{c, d}", "NULL", ""]
    note = {"txn_id": Text("one"), "table_id": Number(), "now_ms": True, "paths": paths}
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        ask(connection, "note_staged_files", note)
    assert ask(connection, "note_staged_files", note | {"now_ms": 2**60}) == [(2**60,)] * 4
    found = catalog.store.intents_before(2**61)
    assert sorted(found) == sorted(("one", 7, path, 2**60) for path in paths)
    for odd in ({"txn_id": "a\0b"}, {"paths": ["/lake/a\0b"]}):
        with pytest.raises(psycopg.DataError, match="NUL"):
            ask(connection, "note_staged_files", note | {"now_ms": 1} | odd)
    with pytest.raises(TypeError, match="float"):
        ask(connection, "note_staged_files", note | {"now_ms": 1.5})


def test_a_refusal_is_the_servers_and_the_connection_goes_on(
    catalog: Catalog, connection: Connection, postgres_uri: DeltaSqlUri
) -> None:
    ask(connection, NAME, {"live_name": "default/t"})
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as admin:
        admin.execute("ALTER TABLE dl_table_heads RENAME TO elsewhere")
        for _ in range(2):
            with pytest.raises(psycopg.errors.UndefinedTable):
                ask(connection, NAME, {"live_name": "default/t"})
        admin.execute("ALTER TABLE elsewhere RENAME TO dl_table_heads")
    assert ask(connection, NAME, {"live_name": "default/t"}) == []


def test_a_lost_connection_is_told_as_such(catalog: Catalog, connection: Connection) -> None:
    for _ in range(2):
        ask(connection, NAME, {"live_name": "default/t"})
    pid = connection.info.backend_pid
    with psycopg.connect(connection.info.dsn) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(psycopg.OperationalError) as lost:
        ask(connection, NAME, {"live_name": "default/t"})
    assert catalog.store.classify(lost.value) is Fault.LOST
    assert connection.closed


def test_work_is_done_before_the_answer_is_taken(connection: Connection) -> None:
    done: list[str] = []
    for _ in range(3):
        ask(connection, NAME, {"live_name": "t"}, lambda: done.append("work"))
    assert done == ["work"] * 3


def test_an_answer_that_nobody_takes_ends_the_connection(connection: Connection) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(connection, NAME, {"live_name": "t"}, interrupt)
    assert connection.closed


def test_a_statement_that_was_let_go_is_prepared_again(connection: Connection) -> None:
    asked = {"live_name": "none"}
    for _ in range(3):
        ask(connection, NAME, asked)
    assert prepared(connection) == 1
    # psycopg does this after a ROLLBACK, if it has prepared a statement of its own.
    connection.execute("DEALLOCATE ALL")
    for _ in range(3):
        assert ask(connection, NAME, asked) == []
    assert prepared(connection) == 1


def test_in_a_transaction_nothing_depends_on_what_is_prepared(connection: Connection) -> None:
    asked = {"live_name": "none"}
    for _ in range(3):
        ask(connection, NAME, asked)
    with connection.transaction():
        connection.execute("DEALLOCATE ALL")
        assert ask(connection, NAME, asked) == []
    assert ask(connection, NAME, asked) == []


def test_appends_go_on_after_a_rollback(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", pa.schema([("id", pa.int64())]), location=str(tmp_path / "t"))
    for round in range(4):
        for _ in range(3):
            with catalog.begin() as tx:
                tx.write("t", pa.table({"id": [round]}))
        for _ in range(3):
            with catalog.store.dialect.session() as session:
                session.begin()
                session.query("list_tables", namespace=None, limit=10, after="")
                session.rollback()
    assert catalog.table("t").snapshot().version == 12


def test_an_open_needs_no_cursor(
    catalog: Catalog, postgres_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("t", pa.schema([("id", pa.int64())]), location=str(tmp_path / "t"))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a cursor takes twice as long as the statements of an open")

    monkeypatch.setattr(psycopg.Connection, "execute", refuse)
    with deltasql.connect(postgres_uri) as opened:
        snapshot = opened.table("t").snapshot()
        assert snapshot.version == 0
        assert snapshot.schema.fields[0].name == "id"
        assert snapshot.protocol == catalog.table("t").snapshot().protocol
