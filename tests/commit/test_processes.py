"""Many processes on one catalog: no commit is lost, duplicated, partial or starved."""

from __future__ import annotations

import os
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from deltasql.exceptions import (
    CommitConflictError,
    StoreUnavailableError,
    TableChangedError,
    TableExistsError,
)
from deltasql.uri import DeltaSqlUri
from tests.commit.support import (
    SCHEMA,
    audit,
    commit,
    file,
    live,
    open_catalog,
    removal,
    run,
    values,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest) -> DeltaSqlUri:
    """A catalog that many processes can open, so it is not a DuckDB file."""
    return request.getfixturevalue(f"{request.param}_uri")


# Appends


def test_appends_of_ten_processes_are_all_committed_once(uri: DeltaSqlUri) -> None:
    processes, appends = 10, 200
    with open_catalog(uri) as catalog:
        catalog.create_table("t", SCHEMA)
        outcomes = run(append_files, [(uri, f"p{n}", appends) for n in range(processes)])
        committed = [version for versions in values(outcomes) for version in versions]
        assert sorted(committed) == list(range(1, processes * appends + 1))
        expected = [f"p{n}-{i}" for n in range(processes) for i in range(appends)]
        assert live(catalog) == sorted(expected)
        history = catalog.table("t").history()
        assert len({row.txn_id for row in history}) == processes * appends + 1
        audit(catalog)


def append_files(barrier: Any, uri: DeltaSqlUri, name: str, appends: int) -> list[int]:
    with open_catalog(uri) as catalog:
        catalog.table("t").version()
        barrier.wait()
        return [commit(catalog, file(f"{name}-{i}")) for i in range(appends)]


def test_appends_of_threads_on_one_catalog_are_all_committed_once(catalog: Catalog) -> None:
    threads, appends = 8, 10
    catalog.create_table("t", SCHEMA)
    expected = [f"p{n}-{i}" for n in range(threads) for i in range(appends)]
    with ThreadPoolExecutor(threads) as pool:
        versions = list(pool.map(lambda path: commit(catalog, file(path)), expected))
    assert sorted(versions) == list(range(1, threads * appends + 1))
    assert live(catalog) == sorted(expected)
    audit(catalog)


def test_duckdb_file_belongs_to_one_process(tmp_path: Path) -> None:
    uri = DeltaSqlUri(backend="duckdb", database=str(tmp_path / "meta.duckdb"))
    with open_catalog(uri) as catalog:
        [outcome] = run(open_fresh, [(uri, 0)])
        assert isinstance(outcome.error, StoreUnavailableError)
        assert "one process" in outcome.error.help
        assert catalog.tables() == []
    assert values(run(open_fresh, [(uri, 0)])) == ["ok"]


# Transactions over several tables


def test_transactions_that_lock_tables_in_any_order_never_deadlock(uri: DeltaSqlUri) -> None:
    processes, rounds, tables = 8, 50, "ABCD"
    with open_catalog(uri) as catalog:
        for name in tables:
            catalog.create_table(name, SCHEMA)
        outcomes = run(cross, [(uri, n, rounds, tables) for n in range(processes)])
        expected: dict[str, list[str]] = {name: [] for name in tables}
        for staged in values(outcomes):
            for name, paths in staged.items():
                expected[name] += paths
        for name in tables:
            assert live(catalog, name) == sorted(expected[name])
        audit(catalog)  # every transaction is complete


def cross(
    barrier: Any, uri: DeltaSqlUri, number: int, rounds: int, tables: str
) -> dict[str, list[str]]:
    """Commit to two to four tables at a time, in random order, with one attempt each."""
    order = random.Random(number)
    staged: dict[str, list[str]] = {name: [] for name in tables}
    with open_catalog(uri, retry={"max_attempts": 1}) as catalog:
        barrier.wait()
        for i in range(rounds):
            chosen = order.sample(tables, order.randint(2, len(tables)))
            with catalog.begin() as tx:
                for name in chosen:
                    tx.stage_table(name, file(f"p{number}-{i}"))
                    staged[name].append(f"p{number}-{i}")
    return staged


def test_creates_of_tables_in_any_order_never_deadlock(uri: DeltaSqlUri) -> None:
    """One transaction creates each pair of tables; the others raise and create nothing."""
    pairs, processes = 10, 4
    with open_catalog(uri) as catalog:
        outcomes = run(create_pairs, [(uri, n, pairs) for n in range(processes)])
        made = [pair for own in values(outcomes) for pair in own]
        assert sorted(made) == list(range(pairs))
        assert len(catalog.tables()) == 2 * pairs
        audit(catalog)


def create_pairs(barrier: Any, uri: DeltaSqlUri, number: int, pairs: int) -> list[int]:
    made = []
    with open_catalog(uri, retry={"max_attempts": 1}) as catalog:
        for pair in range(pairs):
            names = [f"left{pair}", f"right{pair}"]
            barrier.wait()
            try:
                with catalog.begin() as tx:
                    for name in names if number % 2 else reversed(names):
                        tx.create_table(name, SCHEMA)
            except TableExistsError:
                continue
            made.append(pair)
    return made


# Creation


def test_only_one_of_many_concurrent_creates_of_a_name_succeeds(uri: DeltaSqlUri) -> None:
    processes, rounds = 8, 5
    with open_catalog(uri) as catalog:
        outcomes = run(create_tables, [(uri, rounds) for _ in range(processes)])
        for results in zip(*values(outcomes), strict=True):
            assert sorted(results) == ["created"] + ["exists"] * (processes - 1)
        assert [table.name for table in catalog.tables()] == [f"t{i}" for i in range(rounds)]
        audit(catalog)


def create_tables(barrier: Any, uri: DeltaSqlUri, rounds: int) -> list[str]:
    results = []
    with open_catalog(uri) as catalog:
        for i in range(rounds):
            barrier.wait()
            try:
                catalog.create_table(f"t{i}", SCHEMA)
                results.append("created")
            except TableExistsError:
                results.append("exists")
    return results


def test_many_processes_initialize_a_new_database_once(uri: DeltaSqlUri) -> None:
    processes = 8
    outcomes = run(open_fresh, [(uri, n) for n in range(processes)])
    assert values(outcomes) == ["ok"] * processes
    with open_catalog(uri) as catalog:
        assert len(catalog.tables()) == processes
        assert catalog.health().ok
        audit(catalog)


def open_fresh(barrier: Any, uri: DeltaSqlUri, number: int) -> str:
    barrier.wait()
    with open_catalog(uri) as catalog:
        catalog.create_table(f"t{number}", SCHEMA)
    return "ok"


# Concurrent rewrites and appends


def test_concurrent_rewrites_never_lose_or_duplicate_files(uri: DeltaSqlUri) -> None:
    """Rewrites race with each other and with appends: each file is replaced exactly once."""
    seeds = 12
    with open_catalog(uri) as catalog:
        catalog.create_table("t", SCHEMA)
        commit(catalog, [file(f"seed{i}") for i in range(seeds)])
        arguments = [(uri, n, "rewrite") for n in range(4)] + [(uri, n, "append") for n in range(2)]
        outcomes = values(run(rewrite_or_append, arguments))
        rewritten = [path for paths in outcomes[:4] for path in paths]
        appended = [path for paths in outcomes[4:] for path in paths]
        # Exactly one process rewrote each seed, and no seed is left.
        assert sorted(path.split("<")[1] for path in rewritten) == sorted(
            f"seed{i}" for i in range(seeds)
        )
        assert live(catalog) == sorted(rewritten + appended)
        audit(catalog)


def rewrite_or_append(barrier: Any, uri: DeltaSqlUri, number: int, kind: str) -> list[str]:
    """Rewrite seed files to `pN<seedM` until none is left, or append files concurrently."""
    done: list[str] = []
    with open_catalog(uri) as catalog:
        barrier.wait()
        if kind == "append":
            for i in range(20):
                commit(catalog, file(f"a{number}-{i}"))
                done.append(f"a{number}-{i}")
            return done
        while True:
            tx = catalog.begin()
            snapshot = tx.snapshot("t")
            seeds = sorted(p for p in snapshot.files()["path"].to_pylist() if p[:4] == "seed")
            if not seeds:
                return done
            rewritten = f"p{number}<{seeds[0]}"
            try:
                tx.stage_table("t", [removal(file(seeds[0])), file(rewritten)])
                tx.commit()
            except CommitConflictError:
                continue
            done.append(rewritten)


# Fairness


def test_slowest_process_commits_at_least_a_third_of_the_fastest(sqlite_uri: DeltaSqlUri) -> None:
    with open_catalog(sqlite_uri) as catalog:
        catalog.create_table("t", SCHEMA)
        # Run for a number of commits, because a busy machine makes too few commits in a fixed time.
        counts = values(run(append_until, [(sqlite_uri, n, 2_000) for n in range(6)]))
        assert catalog.table("t").version() == sum(counts)
        assert min(counts) * 3 >= max(counts), counts


def append_until(barrier: Any, uri: DeltaSqlUri, number: int, last: int) -> int:
    """Append until the table has the last version; return the number of appends."""
    with open_catalog(uri) as catalog:
        barrier.wait()
        for done in count(1):
            if commit(catalog, file(f"p{number}-{done}")) >= last:
                return done
    raise AssertionError("unreachable")


# Waiting


def test_commit_fails_when_its_table_is_dropped_while_it_waits(uri: DeltaSqlUri) -> None:
    """The table is looked up again after the wait."""
    name = f"deltasql-{uuid.uuid4().hex[:12]}"
    with open_catalog(uri, store={"application_name": name}) as catalog:
        catalog.create_table("t", SCHEMA)
        [row] = [table.row for table in catalog.tables()]
        with ThreadPoolExecutor(1) as other, catalog.store.change([row.table_id]) as (session, _):
            waiting = other.submit(commit, catalog, file("a"))
            wait_for_a_waiter(catalog)
            session.execute("drop_table", table_id=row.table_id, dropped_at_ms=1)
        with pytest.raises(TableChangedError):
            waiting.result()
        catalog.undrop("t")
        assert live(catalog) == []


def wait_for_a_waiter(catalog: Catalog) -> None:
    """Return when another connection waits for a lock; on SQLite, after a pause."""
    if catalog.store.dialect.name != "postgres":
        time.sleep(0.2)
        return
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as admin:
        for _ in range(3000):
            rows = admin.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND application_name = %s",
                [catalog.config.store.application_name],
            ).fetchall()
            if rows:
                return
            time.sleep(0.01)
    raise AssertionError("nobody waits")


def test_write_lock_is_released_while_a_forked_child_still_runs(sqlite_uri: DeltaSqlUri) -> None:
    with open_catalog(sqlite_uri) as catalog:
        catalog.create_table("t", SCHEMA)
        child = get_context("fork").Process(target=time.sleep, args=(30,), daemon=True)
        with catalog.store.dialect.write_turn():
            child.start()
        with ThreadPoolExecutor(1) as other:
            try:
                assert other.submit(commit, catalog, file("a")).result(timeout=20) == 1
            finally:
                child.kill()
                child.join()
