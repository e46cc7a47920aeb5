"""The floor: the minimal SQL that stores the same information, with the same durability.

A commit updates the head of a table and inserts one version, its files, and three statistics rows
per file, in one transaction. There is no validation, no conflict check and no API: the time is that
of the database alone.
"""

from __future__ import annotations

import re
import sqlite3
import time
import uuid
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pyarrow as pa

from benchmarks.harness import Contender, Native

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.workload import Facts

SCHEMA_SQL = """
CREATE TABLE head (
  table_id INTEGER PRIMARY KEY, version BIGINT NOT NULL, next_file BIGINT NOT NULL);
CREATE TABLE version (
  table_id INTEGER NOT NULL, version BIGINT NOT NULL, committed_at_ms BIGINT NOT NULL,
  txn_id TEXT NOT NULL, operation TEXT NOT NULL, PRIMARY KEY (table_id, version));
CREATE TABLE file (
  table_id INTEGER NOT NULL, file_id BIGINT NOT NULL, added_version BIGINT NOT NULL,
  removed_version BIGINT, path TEXT NOT NULL, day TEXT NOT NULL, size BIGINT NOT NULL,
  modified_ms BIGINT NOT NULL, stats TEXT NOT NULL, PRIMARY KEY (table_id, file_id));
CREATE TABLE stat (
  table_id INTEGER NOT NULL, column_id INTEGER NOT NULL, file_id BIGINT NOT NULL,
  low {blob} NOT NULL, high {blob} NOT NULL, nulls BIGINT NOT NULL, records BIGINT NOT NULL,
  PRIMARY KEY (table_id, column_id, file_id));
"""
READ_HEADS = "SELECT table_id, version, next_file FROM head WHERE table_id BETWEEN ? AND ?"
MOVE_HEADS = """
UPDATE head SET version = version + 1, next_file = next_file + ? WHERE table_id BETWEEN ? AND ?
"""
INSERT_VERSION = "INSERT INTO version VALUES (?, ?, ?, ?, 'WRITE')"
INSERT_FILE = "INSERT INTO file VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?)"
INSERT_STAT = "INSERT INTO stat VALUES (?, ?, ?, ?, ?, 0, ?)"

Row = tuple[Any, ...]


class _FilePrepared:
    """A file with encoded keys, so that only SQL is measured."""

    __slots__ = ("columns", "keys", "records")

    def __init__(self, facts: Facts) -> None:
        self.columns = (facts.path, facts.day, facts.size, facts.modified_ms, facts.stats)
        self.keys = facts.keys
        self.records = facts.records


class SqlFloor(Contender):
    """The common part of all floors."""

    _db: Any

    def prepare(self) -> None:
        """Do nothing: this module imports everything."""

    def open(self) -> Native:
        """Connect and read the head of one table, which every reader must do."""
        self.connect()
        return self.reopen(None)

    def reopen(self, handle: Native) -> Native:
        return self._db.execute("SELECT version, next_file FROM head").fetchone()

    def native(self, files: Sequence[Facts]) -> Native:
        return [_FilePrepared(f) for f in files]

    def _rows(
        self, table: int, version: int, next_file: int, files: Sequence[_FilePrepared]
    ) -> tuple[list[Row], list[Row]]:
        rows: list[Row] = []
        stats: list[Row] = []
        for file_id, file in enumerate(files, next_file):
            rows.append((table, file_id, version, *file.columns))
            for column_id, (low, high) in enumerate(file.keys):
                stats.append((table, column_id, file_id, low, high, file.records))
        return rows, stats


class EmbeddedFloor(SqlFloor):
    """SQLite and DuckDB: a few plain statements, each over all tables of the commit."""

    BEGIN: str

    def commit(self, table: int, files: Native) -> None:
        self._append(table, table, [files])

    def commit_each(self, files: Native, tables: int) -> None:
        self._append(0, tables - 1, [[file] for file in files])

    def count(self, table: int) -> int:
        query = "SELECT count(*) FROM file WHERE table_id = ?"
        return int(self._db.execute(query, [table]).fetchone()[0])

    def gaps(self, table: int) -> int:
        query = "SELECT coalesce(max(version), -1) + 1 - count(*) FROM version WHERE table_id = ?"
        return int(self._db.execute(query, [table]).fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _append(self, first: int, last: int, files: Sequence[Sequence[_FilePrepared]]) -> None:
        txn_id = uuid.uuid4().hex
        now = time.time_ns() // 1_000_000
        versions: list[Row] = []
        rows: list[Row] = []
        stats: list[Row] = []
        self._db.execute(self.BEGIN)
        heads = self._db.execute(READ_HEADS, (first, last)).fetchall()
        for (table, version, next_file), table_files in zip(heads, files, strict=True):
            new_rows, new_stats = self._rows(table, version + 1, next_file, table_files)
            versions.append((table, version + 1, now, txn_id))
            rows += new_rows
            stats += new_stats
        self._insert(versions, rows, stats)
        self._db.execute(MOVE_HEADS, (len(files[0]), first, last))
        self._db.execute("COMMIT")

    def _insert(self, versions: list[Row], rows: list[Row], stats: list[Row]) -> None:
        raise NotImplementedError


class SqliteFloor(EmbeddedFloor):
    """SQLite: WAL, synchronous=FULL, BEGIN IMMEDIATE."""

    backend = "sqlite"
    errors = (sqlite3.Error,)
    BEGIN = "BEGIN IMMEDIATE"

    def __init__(self, folder: Path) -> None:
        self.name = "floor-sqlite"
        self.path = folder / "floor.db"

    def create(self, tables: int = 1) -> None:
        self.connect()
        self._db.executescript(SCHEMA_SQL.format(blob="BLOB"))
        self._db.executemany("INSERT INTO head VALUES (?, -1, 0)", [(t,) for t in range(tables)])

    def connect(self) -> None:
        self._db = sqlite3.connect(self.path, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")

    def _insert(self, versions: list[Row], rows: list[Row], stats: list[Row]) -> None:
        self._db.executemany(INSERT_VERSION, versions)
        self._db.executemany(INSERT_FILE, rows)
        self._db.executemany(INSERT_STAT, stats)


class DuckdbFloor(EmbeddedFloor):
    """DuckDB: one process, with its write-ahead log flushed at COMMIT."""

    backend = "duckdb"
    errors = (duckdb.Error,)
    BEGIN = "BEGIN"
    max_commits = 10_000

    def __init__(self, folder: Path) -> None:
        self.name = "floor-duckdb"
        self.path = folder / "floor.duckdb"

    def create(self, tables: int = 1) -> None:
        self.connect()
        self._db.execute(SCHEMA_SQL.format(blob="BLOB"))
        self._db.executemany("INSERT INTO head VALUES (?, -1, 0)", [(t,) for t in range(tables)])

    def connect(self) -> None:
        self._db = duckdb.connect(str(self.path))

    def _insert(self, versions: list[Row], rows: list[Row], stats: list[Row]) -> None:
        self._insert_values("version", "(?, ?, ?, ?, 'WRITE')", versions)
        if len(rows) > 100:
            self._insert_arrow(rows, stats)
        else:
            self._insert_values("file", "(?, ?, ?, NULL, ?, ?, ?, ?, ?)", rows)
            self._insert_values("stat", "(?, ?, ?, ?, ?, 0, ?)", stats)

    def _insert_values(self, table: str, shape: str, rows: list[Row]) -> None:
        # A VALUES list is several times faster than executemany, which runs a statement per row.
        values = ", ".join([shape] * len(rows))
        self._db.execute(f"INSERT INTO {table} VALUES {values}", [v for row in rows for v in row])

    def _insert_arrow(self, rows: list[Row], stats: list[Row]) -> None:
        new_files = pa.table(dict(zip("abcdefgh", map(list, zip(*rows, strict=True)), strict=True)))
        new_stats = pa.table(dict(zip("abcdef", map(list, zip(*stats, strict=True)), strict=True)))
        self._db.register("new_files", new_files)
        self._db.register("new_stats", new_stats)
        self._db.execute("INSERT INTO file SELECT a, b, c, NULL, d, e, f, g, h FROM new_files")
        self._db.execute("INSERT INTO stat SELECT a, b, c, d, e, 0, f FROM new_stats")


class PostgresFloor(SqlFloor):
    """PostgreSQL, with the whole commit in one statement and one round trip."""

    backend = "postgres"
    errors = (psycopg.Error,)

    def __init__(self, database: str) -> None:
        self.name = "floor-postgres"
        self.database = database

    def create(self, tables: int = 1) -> None:
        self.connect()
        self._db.execute(SCHEMA_SQL.format(blob="BYTEA"), prepare=False)
        for table in range(tables):
            self._db.execute("INSERT INTO head VALUES (%s, -1, 0)", [table])

    def connect(self) -> None:
        self._db = psycopg.connect(dbname=self.database, autocommit=True, prepare_threshold=0)
        # With more than 50 parameters, psycopg parses the query each time; a raw cursor does not.
        self._raw = psycopg.RawCursor(self._db)

    def close(self) -> None:
        self._db.close()

    def commit(self, table: int, files: Native) -> None:
        if len(files) == 1:
            self._one_statement([table], files)
        else:
            self._bulk(table, files)

    def commit_each(self, files: Native, tables: int) -> None:
        self._one_statement(range(tables), files)

    def count(self, table: int) -> int:
        row = self._db.execute("SELECT count(*) FROM file WHERE table_id = %s", [table]).fetchone()
        return int(row[0]) if row else 0

    def gaps(self, table: int) -> int:
        query = "SELECT coalesce(max(version), -1) + 1 - count(*) FROM version WHERE table_id = %s"
        row = self._db.execute(query, [table]).fetchone()
        return int(row[0]) if row else 0

    def _one_statement(self, tables: Sequence[int], files: Sequence[_FilePrepared]) -> None:
        values: list[Any] = [time.time_ns() // 1_000_000, uuid.uuid4().hex]
        for table, file in zip(tables, files, strict=True):
            values += (table, *file.columns)
        for table, file in zip(tables, files, strict=True):
            for column_id, (low, high) in enumerate(file.keys):
                values += (table, column_id, low, high, file.records)
        self._raw.execute(_one_statement(len(files)), values)

    def _bulk(self, table: int, files: Sequence[_FilePrepared]) -> None:
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.execute(
                "SELECT version + 1, next_file FROM head WHERE table_id = %s FOR UPDATE", [table]
            )
            version, next_file = cursor.fetchone()  # type: ignore[misc]
            rows, stats = self._rows(table, version, next_file, files)
            cursor.execute(
                "INSERT INTO version VALUES (%s, %s, %s, %s, 'WRITE')",
                [table, version, time.time_ns() // 1_000_000, uuid.uuid4().hex],
            )
            with cursor.copy(
                "COPY file (table_id, file_id, added_version, path, day, size, modified_ms, stats)"
                " FROM STDIN"
            ) as copy:
                for row in rows:
                    copy.write_row(row)
            with cursor.copy("COPY stat FROM STDIN") as copy:
                for row in stats:
                    copy.write_row((*row[:5], 0, row[5]))
            cursor.execute(
                "UPDATE head SET version = %s, next_file = %s WHERE table_id = %s",
                [version, next_file + len(files), table],
            )


class PostgresRowLockFloor(PostgresFloor):
    """PostgreSQL as most programs use it: lock the head row, insert, update the head, commit."""

    max_commits = 10_000

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.name = "floor-postgres-rowlock"

    def commit(self, table: int, files: Native) -> None:
        with self._db.transaction():
            self._append(table, files[0], uuid.uuid4().hex)

    def commit_each(self, files: Native, tables: int) -> None:
        txn_id = uuid.uuid4().hex
        with self._db.transaction():
            for table in range(tables):
                self._append(table, files[table], txn_id)

    def _append(self, table: int, file: _FilePrepared, txn_id: str) -> None:
        db = self._db
        head = db.execute(
            "SELECT version + 1, next_file FROM head WHERE table_id = %s FOR UPDATE", [table]
        ).fetchone()
        assert head is not None
        version, file_id = head
        db.execute(
            "INSERT INTO version VALUES (%s, %s, %s, %s, 'WRITE')",
            [table, version, time.time_ns() // 1_000_000, txn_id],
        )
        db.execute(
            "INSERT INTO file VALUES (%s, %s, %s, NULL, %s, %s, %s, %s, %s)",
            [table, file_id, version, *file.columns],
        )
        stats = [
            (table, c, file_id, low, high, 0, file.records)
            for c, (low, high) in enumerate(file.keys)
        ]
        db.execute(
            "INSERT INTO stat VALUES (%s, %s, %s, %s, %s, %s, %s),"
            " (%s, %s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s, %s)",
            [value for row in stats for value in row],
        )
        db.execute(
            "UPDATE head SET version = %s, next_file = %s WHERE table_id = %s",
            [version, file_id + 1, table],
        )


@cache
def _one_statement(files: int) -> bytes:
    # Pass scalars in VALUES instead of arrays, because psycopg needs 0.3 ms to adapt the arrays of
    # one file.
    file_rows = ", ".join(
        ["(%s::int, %s::text, %s::text, %s::bigint, %s::bigint, %s::text)"] * files
    )
    stat_rows = ", ".join(["(%s::int, %s::int, %s::bytea, %s::bytea, %s::bigint)"] * files * 3)
    text = f"""
WITH new_files (now_ms, txn_id, table_id, path, day, size, modified_ms, stats) AS (
  SELECT %s::bigint, %s::text, f.* FROM (VALUES {file_rows}) AS f),
moved AS (
  UPDATE head SET version = version + 1, next_file = next_file + 1
  WHERE table_id IN (SELECT table_id FROM new_files)
  RETURNING table_id, version, next_file - 1 AS file_id),
versions AS (
  INSERT INTO version SELECT table_id, version, now_ms, txn_id, 'WRITE'
  FROM moved JOIN new_files USING (table_id)),
files AS (
  INSERT INTO file
  SELECT table_id, file_id, version, NULL, path, day, size, modified_ms, stats
  FROM moved JOIN new_files USING (table_id))
INSERT INTO stat SELECT table_id, column_id, file_id, low, high, 0, records
FROM moved JOIN (VALUES {stat_rows}) AS s (table_id, column_id, low, high, records) USING (table_id)
"""
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", text).encode()
