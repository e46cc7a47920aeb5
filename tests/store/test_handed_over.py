"""What is handed to PostgreSQL is done before anything that is asked later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

import deltasql
from deltasql.store.postgres import conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FUTURE_MS = 2**60


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with deltasql.connect(postgres_uri) as opened:
        yield opened


def noted(catalog: Catalog) -> list[str]:
    return sorted(path for _, _, path, _ in catalog.store.intents_before(FUTURE_MS))


def test_notes_are_there_for_whoever_asks_next(catalog: Catalog) -> None:
    paths = ["/lake/plain", '/lake/a "quoted" \\ name', "/lake/{comma, brace}", "/lake/größe"]
    catalog.store.record_intents("one", 1, paths)
    catalog.store.record_intents("two", 1, ["/lake/other"])
    assert noted(catalog) == sorted([*paths, "/lake/other"])


def test_notes_are_there_for_another_connection(catalog: Catalog) -> None:
    catalog.store.record_intents("one", 1, ["/lake/a"])
    found: list[list[str]] = []
    with catalog.store.session():  # the connection at hand is taken
        other = threading.Thread(target=lambda: found.append(noted(catalog)))
        other.start()
        other.join()
    assert found == [["/lake/a"]]


def test_many_notes_at_once(catalog: Catalog) -> None:
    paths = [f"/lake/{'x' * 500}-{number}" for number in range(5_000)]
    catalog.store.record_intents("one", 1, paths)
    assert len(noted(catalog)) == len(paths)


def test_a_note_that_is_refused_stops_nothing(catalog: Catalog, postgres_uri: DeltaSqlUri) -> None:
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as admin:
        admin.execute("ALTER TABLE dl_staged_files RENAME TO elsewhere")
        catalog.store.record_intents("one", 1, ["/lake/a"])
        assert catalog.tables() == []
        admin.execute("ALTER TABLE elsewhere RENAME TO dl_staged_files")
    catalog.store.record_intents("one", 1, ["/lake/b"])
    assert noted(catalog) == ["/lake/b"]


def test_a_connection_that_dies_after_a_note_is_replaced(catalog: Catalog) -> None:
    with catalog.store.session() as session:
        (pid,) = session._connection.execute("SELECT pg_backend_pid()").fetchone()  # type: ignore[attr-defined]
        other = psycopg.connect(session._connection.info.dsn)  # type: ignore[attr-defined]
    catalog.store.record_intents("one", 1, ["/lake/a"])
    with other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    catalog.store.record_intents("two", 1, ["/lake/b"])
    assert "/lake/b" in noted(catalog)


def test_closing_with_a_note_on_its_way(postgres_uri: DeltaSqlUri) -> None:
    with deltasql.connect(postgres_uri) as catalog:
        catalog.store.record_intents("one", 1, ["/lake/a"])
    with pytest.raises(deltasql.exceptions.StoreClosedError):
        catalog.store.record_intents("one", 1, ["/lake/b"])
