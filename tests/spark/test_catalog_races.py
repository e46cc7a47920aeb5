"""SQL through the catalog, Python and delta-spark race; one order explains what all of them saw.

Every change has a name, which is the value of the column `writer` in all its rows. The commit of a
change is the first version with a row of this name: Spark does not return a transaction id.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pytest

import deltasql.spark
from deltasql.exceptions import CommitConflictError, RetriesExhaustedError
from deltasql.serve import Service
from deltasql.spark.catalog import LOG_STORE_CLASS
from tests.commit.support import audit
from tests.selection import EVERYTHING
from tests.serializability.checker import counts, problems
from tests.serializability.clients import (
    ROW_LEVELS,
    create,
    logs,
    open_lake,
    row_logs,
    stage_rows,
)
from tests.serializability.record import COMMITTED, FAILED, READ, Transaction
from tests.serializability.rows import (
    APPEND,
    INSERT,
    KINDS,
    OVERWRITE,
    REPLACE,
    UPSERT,
    Change,
    row_problems,
)
from tests.spark.support import add_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.serializability.checker import Log
    from tests.serializability.rows import RowLog

_TURNS = 6 if EVERYTHING else 2
_PYTHON_COMMITS = 3
"""How many transactions Python runs while a statement of Spark runs."""
_CONFLICTS = (
    "DELTA_CONCURRENT",
    RetriesExhaustedError.__name__,
    *(each.__name__ for each in CommitConflictError.__subclasses__()),
)


@dataclass(slots=True)
class Attempt:
    """A transaction of a Spark client, as far as the client knows it."""

    writer: str
    changes: Mapping[str, Change] = field(default_factory=dict)
    files: dict[str, frozenset[str]] = field(default_factory=dict)
    """The files of each table that it read."""
    start_ns: int = field(default_factory=time.monotonic_ns)
    end_ns: int = 0
    outcome: str = FAILED


@pytest.fixture
def race(
    spark: SparkSession, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> Iterator[tuple[Catalog, str]]:
    """A catalog with tables of both isolation levels, and its service file.

    delta-spark commits through the catalog, too.
    """
    deltasql.spark.jar()  # raises if the jar is not built
    key = "spark.delta.logStore.file.impl"
    with open_lake(catalog_uri, tmp_path) as catalog:
        create(catalog)
        service = Service(catalog).start(tmp_path / "service.json")
        configuration = spark.sparkContext._jsc.sc().conf()
        configuration.set(key, LOG_STORE_CLASS)
        yield catalog, str(tmp_path / "service.json")
        configuration.remove(key)
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        service.stop()


@pytest.mark.timeout(1800)
def test_sql_python_and_delta_spark_commits_have_one_order(
    spark: SparkSession, race: tuple[Catalog, str]
) -> None:
    catalog, file = race
    kinds = [SqlClient, DeltaClient, *[TransactionClient, SqlClient, DeltaClient] * EVERYTHING]
    python = PythonClient(catalog)
    others = [kind(spark, catalog, file) for kind in kinds]
    race_in_turns([python, *others])
    audit(catalog)
    found = logs(catalog)
    tables = row_logs(catalog, found)
    attempts = [attempt for client in others for attempt in client.attempts]
    transactions = [*python.done, *with_commits(attempts, catalog, found, tables)]
    assert problems(transactions, found) == []
    assert row_problems(transactions, tables) == []
    # In the few turns of `make test`, all attempts of one client may be conflicts.
    for each in [client.attempts for client in others] if EVERYTHING else [attempts]:
        assert any(attempt.outcome == COMMITTED for attempt in each)
    assert counts(transactions)[READ] > 0


def race_in_turns(clients: Sequence[Client]) -> None:
    """Run the clients in threads; all steps of a turn begin at the same time."""
    barrier = threading.Barrier(len(clients))
    failures: list[BaseException] = []

    def run(number: int, client: Client) -> None:
        rng = random.Random(number)
        try:
            for turn in range(_TURNS):
                barrier.wait(300)
                client.step(f"{number}-{turn}", number + turn, rng)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def random_change(writer: str, number: int, rng: random.Random) -> Change:
    """Return a change of a few rows; `number` determines its kind."""
    kind = KINDS[number % len(KINDS)]
    part = rng.choice("xyz") if kind == REPLACE else None
    keys = rng.sample(range(12), rng.choice((1, 2, 3)))
    return Change(kind, tuple((key, part or "xyz"[key % 3], writer) for key in keys), -1, part)


class Client(Protocol):
    """Changes or reads the tables once in each step."""

    def step(self, writer: str, number: int, rng: random.Random) -> None: ...


class PythonClient:
    """Changes one table or both in a transaction of Python, several times in a step."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.done: list[Transaction] = []

    def step(self, writer: str, number: int, rng: random.Random) -> None:
        for each in range(_PYTHON_COMMITS):
            tx = self._catalog.begin()
            done = Transaction(tx.txn_id, time.monotonic_ns())
            for table in rng.sample(list(ROW_LEVELS), rng.choice((1, 2))):
                change = random_change(f"{writer}-{each}", number + each, rng)
                stage_rows(tx, done, table, change)
            try:
                done.versions = tx.commit()
                done.outcome = COMMITTED if done.tables else READ
            except (CommitConflictError, RetriesExhaustedError):
                done.outcome = FAILED
            done.end_ns = time.monotonic_ns()
            self.done.append(done)


class SparkClient:
    """A Spark session of its own, whose attempts are recorded."""

    def __init__(self, spark: SparkSession, catalog: Catalog, file: str) -> None:
        self._session = spark.newSession()
        self._session.conf.set("deltasql.logStore.service", file)
        self._lake = add_catalog(self._session, service=file)
        self._places = {name: catalog.table(name).location for name in ROW_LEVELS}
        self.attempts: list[Attempt] = []

    @contextmanager
    def _attempt(self, writer: str, changes: Mapping[str, Change]) -> Iterator[Attempt]:
        """Record what a block does; a conflict ends the block."""
        attempt = Attempt(writer, changes)
        try:
            yield attempt
            attempt.outcome = COMMITTED if changes else READ
        except Exception as error:
            if not any(name in str(error) for name in _CONFLICTS):
                raise
        attempt.end_ns = time.monotonic_ns()
        self.attempts.append(attempt)

    def _files(self, table: str, column: str, source: str) -> frozenset[str]:
        """Return the files of a table with rows, as the log names them."""
        rows = self._session.sql(f"SELECT DISTINCT {column} FROM {source}").collect()
        paths = (Path(unquote(urlsplit(row[0]).path)) for row in rows)
        return frozenset(str(path.relative_to(self._places[table])) for path in paths)


class SqlClient(SparkClient):
    """Changes a table with a statement through the Spark catalog."""

    def step(self, writer: str, number: int, rng: random.Random) -> None:
        table, change = rng.choice(list(ROW_LEVELS)), random_change(writer, number, rng)
        with self._attempt(writer, {table: change}):
            self._session.sql(statement(f"{self._lake}.default.{table}", change))


class TransactionClient(SparkClient):
    """Reads both tables in a transaction of SQL, and changes both in another one.

    In every second step, the transaction that changes them has read them before.
    """

    def step(self, writer: str, number: int, rng: random.Random) -> None:
        with self._attempt(f"{writer}-read", {}) as attempt, self._transaction():
            self._read(attempt)
        first, second = random_change(writer, number, rng), random_change(writer, number + 1, rng)
        changes = dict(zip(ROW_LEVELS, (first, second), strict=True))
        with self._attempt(writer, changes) as attempt, self._transaction():
            if number % 2:
                self._read(attempt)
            for table, change in changes.items():
                self._session.sql(statement(f"{self._lake}.default.{table}", change))

    def _read(self, attempt: Attempt) -> None:
        for table in ROW_LEVELS:
            source = f"{self._lake}.default.{table}"
            attempt.files[table] = self._files(table, "_file", source)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._session.sql(f"CALL {self._lake}.system.begin()")
        try:
            yield
        except BaseException:
            self._session.sql(f"CALL {self._lake}.system.rollback()")
            raise
        self._session.sql(f"CALL {self._lake}.system.commit()")


class DeltaClient(SparkClient):
    """Changes a table with delta-spark, and then reads it."""

    def step(self, writer: str, number: int, rng: random.Random) -> None:
        change = random_change(writer, number, rng)
        # Under WriteSerializable, delta-spark may order a merge before changes of other rows that
        # have earlier versions. The checker keeps the order of the versions.
        tables = list(ROW_LEVELS) if change.kind in (APPEND, OVERWRITE) else ["r"]
        table = rng.choice(tables)
        place = f"delta.`{self._places[table]}`"
        with self._attempt(writer, {table: change}):
            self._session.sql(statement(place, change))
        with self._attempt(f"{writer}-read", {}) as attempt:
            attempt.files[table] = self._files(table, "_metadata.file_path", place)


def statement(table: str, change: Change) -> str:
    """Return a change as a statement of SQL."""
    rows = ", ".join(f"({key}L, '{part}', '{writer}')" for key, part, writer in change.rows)
    source = f"(SELECT * FROM VALUES {rows} AS v (id, part, writer))"
    merge = f"MERGE INTO {table} AS t USING {source} AS s ON t.id = s.id"
    return {
        APPEND: f"INSERT INTO {table} SELECT * FROM {source}",
        OVERWRITE: f"INSERT OVERWRITE {table} SELECT * FROM {source}",
        REPLACE: f"INSERT INTO {table} REPLACE WHERE part = '{change.part}' SELECT * FROM {source}",
        INSERT: f"{merge} WHEN NOT MATCHED THEN INSERT *",
        UPSERT: f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    }[change.kind]


def with_commits(
    attempts: Sequence[Attempt],
    catalog: Catalog,
    logs: Mapping[str, Log],
    tables: Mapping[str, RowLog],
) -> Iterator[Transaction]:
    """Return the attempts of Spark as transactions, with their commits as the logs have them."""
    states = {name: logs[name].states() for name in ROW_LEVELS}
    seen = {
        name: {row.version: row.info.read_version for row in catalog.table(name).history()}
        for name in ROW_LEVELS
    }
    for attempt in attempts:
        done = Transaction(attempt.writer, attempt.start_ns, end_ns=attempt.end_ns)
        done.outcome = attempt.outcome
        for name, paths in attempt.files.items():
            versions = [n for n, state in enumerate(states[name]) if state == paths]
            # The checker reports a version that the log does not have.
            done.reads[name] = (versions[-1] if versions else len(states[name]), paths)
        for name, change in attempt.changes.items():
            version = first_version_of(tables[name], attempt.writer)
            if version is not None:
                commit = logs[name].versions[version]
                done.txn_id = commit.txn_id
                done.adds[name], done.removes[name] = commit.adds, commit.removes
                done.versions[name] = version
                read_version = seen[name][version]
                assert read_version is not None or change.kind == APPEND, (name, version)
                done.changes[name] = replace(change, read_version=read_version or 0)
            elif attempt.outcome == COMMITTED and change.kind != INSERT:
                # An insert of existing keys commits nothing. The checker reports all others.
                done.adds[name], done.versions[name] = frozenset(), -1
        if done.tables or done.reads:
            yield done


def first_version_of(log: RowLog, writer: str) -> int | None:
    """Return the first version with a row of a writer."""
    found = (n for n, (_, rows) in enumerate(log.versions) if any(r[2] == writer for r in rows))
    return next(found, None)
