"""Many processes, one catalog: nothing is lost, doubled, torn or starved."""

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
    """A catalog that many processes may open; DuckDB's belongs to one."""
    return request.getfixturevalue(f"{request.param}_uri")


# Appends


def test_ten_processes_append_two_hundred_times_each(uri: DeltaSqlUri) -> None:
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


def test_threads_share_a_catalog(catalog: Catalog) -> None:
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


def test_crossing_transactions_never_deadlock(uri: DeltaSqlUri) -> None:
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
        audit(catalog)  # every group is whole


def cross(
    barrier: Any, uri: DeltaSqlUri, number: int, rounds: int, tables: str
) -> dict[str, list[str]]:
    """Commit to two to four tables at a time, in an order of its own; one attempt must do."""
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


def test_crossing_creates_never_deadlock(uri: DeltaSqlUri) -> None:
    """Each pair of names is made by one transaction; the others are told so and make nothing."""
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


# First steps


def test_name_is_taken_by_one_of_many_racing_creates(uri: DeltaSqlUri) -> None:
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


def test_fresh_database_is_set_up_once_by_many_processes(uri: DeltaSqlUri) -> None:
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


# Deletes against inserts


def test_deletes_are_never_lost_and_rows_never_doubled(uri: DeltaSqlUri) -> None:
    """Rewrites race with one another and with appends: a file leaves once, its rows stay once."""
    seeds = 12
    with open_catalog(uri) as catalog:
        catalog.create_table("t", SCHEMA)
        commit(catalog, [file(f"seed{i}") for i in range(seeds)])
        arguments = [(uri, n, "rewrite") for n in range(4)] + [(uri, n, "append") for n in range(2)]
        outcomes = values(run(rewrite_or_append, arguments))
        rewritten = [path for paths in outcomes[:4] for path in paths]
        appended = [path for paths in outcomes[4:] for path in paths]
        # Every seed was rewritten by exactly one process, and none is left.
        assert sorted(path.split("<")[1] for path in rewritten) == sorted(
            f"seed{i}" for i in range(seeds)
        )
        assert live(catalog) == sorted(rewritten + appended)
        audit(catalog)


def rewrite_or_append(barrier: Any, uri: DeltaSqlUri, number: int, kind: str) -> list[str]:
    """Rewrite seeds until none is left (its rows live on in `pN<seedM`), or append in between."""
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


def test_slowest_process_gets_a_third_of_the_fastest(sqlite_uri: DeltaSqlUri) -> None:
    with open_catalog(sqlite_uri) as catalog:
        catalog.create_table("t", SCHEMA)
        # Until so many commits are there, not for some seconds: a busy machine makes few of them.
        counts = values(run(append_until, [(sqlite_uri, n, 2_000) for n in range(6)]))
        assert catalog.table("t").version() == sum(counts)
        assert min(counts) * 3 >= max(counts), counts


def append_until(barrier: Any, uri: DeltaSqlUri, number: int, last: int) -> int:
    """Append until the table has the last version; return how many appends were ours."""
    with open_catalog(uri) as catalog:
        barrier.wait()
        for done in count(1):
            if commit(catalog, file(f"p{number}-{done}")) >= last:
                return done
    raise AssertionError("unreachable")


# Waiting


def test_table_dropped_while_a_commit_waits_for_it_is_not_written(uri: DeltaSqlUri) -> None:
    """The name that counts is the one after the wait."""
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
    """Return when another connection waits for a lock; on SQLite, when it had time to."""
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


def test_turn_to_write_ends_although_a_forked_child_lives_on(sqlite_uri: DeltaSqlUri) -> None:
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
