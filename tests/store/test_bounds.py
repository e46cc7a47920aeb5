"""The number of SQL statements of an operation does not grow with the size of its input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.conftest import add_file

from deltasql.model.actions import RemoveFile
from deltasql.model.clock import from_ms, now_ms

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


class Counted:
    """A session that counts its statements."""

    def __init__(self, session: Any, calls: list[str]) -> None:
        self._session, self._calls = session, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name not in ("query", "execute", "run", "insert", "begin", "begin_read", "commit"):
            return found

        def counted(*args: Any, **params: Any) -> Any:
            self._calls.append(args[0] if args else name)
            return found(*args, **params)

        return counted


@pytest.fixture
def count(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function that runs another function and returns how many statements it executed."""
    calls: list[str] = []
    dialect: Any = catalog.store.dialect
    session, arrow = dialect.session, dialect.arrow

    @contextmanager
    def counted_session() -> Iterator[Counted]:
        with session() as borrowed:
            yield Counted(borrowed, calls)

    def counted_arrow(name: str, /, **params: Any) -> pa.Table:
        calls.append(name)
        return arrow(name, **params)

    monkeypatch.setattr(dialect, "session", counted_session)
    monkeypatch.setattr(dialect, "arrow", counted_arrow)

    def run(work: Callable[..., object], *args: Any) -> int:
        calls.clear()
        work(*args)
        return len(calls)

    return run


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    """Run on two databases. DuckDB is left out: it executes the same statements as SQLite."""
    return str(request.param)


def files(prefix: str, number: int, days: int = 1) -> list[Any]:
    return [
        add_file(
            f"{prefix}-{i}", i * 10, i * 10 + 9, partition_values={"day": f"2024-01-{i % days:02d}"}
        )
        for i in range(number)
    ]


def commit(catalog: Catalog, *staged: tuple[str, list[Any]]) -> None:
    with catalog.begin() as tx:
        for name, actions in staged:
            tx.stage_table(name, actions)


@pytest.fixture
def table(catalog: Catalog) -> str:
    catalog.create_table("t", SCHEMA, partition_by="day")
    commit(catalog, ("t", files("first", 1)))
    return "t"


def test_commit_statements_do_not_grow_with_files(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    one = count(commit, catalog, (table, files("one", 1)))
    many = count(commit, catalog, (table, files("many", 5000, days=20)))
    assert one <= 8
    assert many <= 11  # new partitions are looked up, numbered and inserted


def test_append_takes_a_fixed_number_of_statements(
    catalog: Catalog, table: str, backend: str, count: Callable[..., int]
) -> None:
    rows = pa.table({"id": [1, 2], "day": ["2024-01-00"] * 2}, SCHEMA)

    def append() -> None:
        with catalog.begin() as tx:
            tx.write(table, rows)

    append()
    # The table, the intent and the commit: each is one round trip on PostgreSQL.
    bound = {"postgres": 3, "sqlite": 15}[backend]
    assert count(append) <= bound
    for number in range(5):
        commit(catalog, (table, files(str(number), 50)))
    assert count(append) <= bound


def test_removing_many_files_takes_as_many_statements_as_removing_one_file(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    added = files("old", 2000)
    commit(catalog, (table, added))
    gone = [RemoveFile(add.path) for add in added]
    one = count(commit, catalog, (table, gone[:1]))
    assert count(commit, catalog, (table, gone[1:])) == one <= 10


def test_multi_table_commit_takes_a_fixed_number_of_statements_per_table(
    catalog: Catalog, count: Callable[..., int]
) -> None:
    names = [f"t{number}" for number in range(10)]
    with catalog.begin() as tx:
        for name in names:
            tx.create_table(name, SCHEMA, partition_by="day")
    commit(catalog, *((name, files("first", 1)) for name in names))

    def both(chosen: list[str], prefix: str) -> int:
        return count(commit, catalog, *((name, files(prefix, 1)) for name in chosen))

    one, ten = both(names[:1], "one"), both(names, "ten")
    # Begin, lock and COMMIT are shared; each table adds its own inserts.
    assert ten - one <= 9 * 5


def test_rebase_statements_do_not_grow_with_winning_commits(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    from deltasql.commit.staged import ReadSet

    def rebase(path: str, read_version: int) -> None:
        reads = ReadSet(predicates=(catalog.table(table).snapshot().predicate("id = -1"),))
        with catalog.begin() as tx:
            tx.stage_table(table, files(path, 1), read_version=read_version, reads=reads)

    first = catalog.table(table).version()
    over_none = count(rebase, "none", first)
    over_one = count(rebase, "one", first)
    for number in range(20):
        commit(catalog, (table, files(f"winner-{number}", 3)))
    assert count(rebase, "many", first) == over_one <= over_none + 7


def test_opening_a_snapshot_takes_one_statement(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    handle = catalog.table(table)
    for number in range(5):
        commit(catalog, (table, files(str(number), 3)))
    snapshot = handle.snapshot()
    assert count(handle.snapshot) == 1
    assert count(lambda: handle.snapshot(2)) == 1
    assert count(lambda: handle.snapshot(timestamp=snapshot.committed_at)) == 1
    assert count(lambda: handle.snapshot().schema) == 1, "metadata is remembered"


def test_a_page_of_history_takes_one_statement(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    for number in range(30):
        commit(catalog, (table, files(str(number), 1)))
    snapshot = catalog.table(table).snapshot()
    assert count(lambda: list(snapshot.history(25))) == 1
    assert count(lambda: list(snapshot.history())) == 1
    assert count(lambda: [v.info.operation for v in snapshot.history(5, before=10)]) == 1


@pytest.mark.parametrize("predicate", [None, "day = '2024-01-03'", "id = 55", "id = 5 OR id = 9"])
def test_planning_a_scan_takes_a_fixed_number_of_statements(
    catalog: Catalog, table: str, predicate: str | None, count: Callable[..., int]
) -> None:
    def plan() -> None:
        catalog.cache.clear()
        catalog.table(table).scan(predicate).paths()

    plan()
    few = count(plan)
    commit(catalog, (table, files("more", 3000, days=20)))
    plan()
    assert count(plan) <= max(few, 5)


def test_cached_file_list_takes_one_statement(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    handle = catalog.table(table)
    handle.files()
    assert count(handle.files) == 1
    commit(catalog, (table, files("more", 100)))
    assert count(handle.files) == 3  # plus the files that were removed and added since


def test_listing_and_health_statements_do_not_grow_with_tables(
    catalog: Catalog, count: Callable[..., int]
) -> None:
    with catalog.begin() as tx:
        for number in range(200):
            tx.create_table(f"t{number}", SCHEMA)
    assert count(catalog.tables) == 1
    assert len(catalog.tables()) == 200
    assert count(catalog.namespaces) == 1
    assert count(catalog.health) <= 2


def test_catalog_as_of_a_timestamp_takes_one_statement(
    catalog: Catalog, count: Callable[..., int]
) -> None:
    with catalog.begin() as tx:
        for number in range(50):
            tx.create_table(f"t{number}", SCHEMA)
    timestamp = from_ms(now_ms() + 1000)
    assert count(catalog.as_of, timestamp) == 1
    assert len(catalog.as_of(timestamp)) == 50


def test_describe_takes_a_fixed_number_of_statements(
    catalog: Catalog, table: str, count: Callable[..., int]
) -> None:
    for number in range(10):
        commit(catalog, (table, files(str(number), 20)))
    assert count(catalog.describe, table) <= 4
    assert json.dumps(catalog.describe(table), default=str)
