"""DuckLake, the peer with its catalog in SQL: on DuckDB, SQLite and PostgreSQL."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from benchmarks.harness import Contender, Native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.workload import Facts


COLUMNS = "(day VARCHAR, id BIGINT, code BIGINT, amount DOUBLE)"


class DuckLake(Contender):
    """DuckLake: an insert of one small row is a commit of one file.

    By default it stores small inserts in the catalog (inlining), so no Parquet file is written
    and the commit is only metadata. `style="parquet"` turns that off, and `style="addfile"`
    registers an existing Parquet file.
    """

    max_commits = 1_000
    errors = (duckdb.Error,)

    def __init__(self, backend: str, where: Path | str, *, style: str = "inline") -> None:
        self.backend = backend
        self.style = style
        if style == "addfile":
            self.max_commits = 0  # the slowest style: measured once, for comparison
        self.name = f"ducklake-{backend}" + ("" if style == "inline" else f"-{style}")
        # The folder of the data, and of the catalog unless it is in PostgreSQL.
        self.folder = Path(where)
        self.database = ""

    def on_database(self, database: str) -> DuckLake:
        """Use this PostgreSQL database for the catalog."""
        self.database = database
        return self

    def create(self, tables: int = 1) -> None:
        self.connect()
        for table in range(tables):
            self._db.execute(f"CREATE TABLE lake.t{table} {COLUMNS}")
        one = self.folder / "one.parquet"
        self._db.execute(
            f"COPY (SELECT 'd0000' AS day, 1::BIGINT AS id, 1::BIGINT AS code, 1::DOUBLE AS amount)"
            f" TO '{one}' (FORMAT parquet)"
        )
        self._add_file = f"CALL ducklake_add_data_files('lake', 't0', '{one}')"

    def prepare(self) -> None:
        self._db = ducklake_connection()

    def connect(self) -> None:
        self.prepare()
        self._db.execute(self.attach_sql())

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with the catalog attached as `lake`."""
        return self._db

    def open(self) -> Native:
        self._db.execute(self.attach_sql())
        return self.reopen(None)

    def reopen(self, handle: Native) -> Native:
        # The catalog is attached. Each statement reads the latest snapshot of the table.
        self._db.execute("DESCRIBE lake.t0").fetchall()
        return self._db

    def list_files(self, handle: Native) -> int:
        found = handle.execute("FROM ducklake_list_files('lake', 't0')").fetch_arrow_table()
        return int(found.num_rows)

    def plan(self, handle: Native, predicate: str) -> int:
        # EXPLAIN does not plan files. Reading the first row needs the plan and opens one file;
        # LIMIT prevents opening the others.
        return len(handle.execute(f"SELECT id FROM lake.t0 WHERE {predicate} LIMIT 1").fetchall())

    def attach_sql(self) -> str:
        """Return the statement that opens the catalog."""
        catalog = {
            "duckdb": f"{self.folder}/lake.duckdb",
            "sqlite": f"sqlite:{self.folder}/lake.sqlite",
            "postgres": f"postgres:dbname={self.database}",
        }[self.backend]
        # A copied catalog has the path of the original.
        options = [f"DATA_PATH '{self.folder}/data'", "OVERRIDE_DATA_PATH true"]
        if self.style != "inline":
            options.append("DATA_INLINING_ROW_LIMIT 0")
        if self.backend == "sqlite":
            # With WAL and a long busy timeout its SQLite catalog performs best.
            options += ["META_JOURNAL_MODE 'WAL'", "META_BUSY_TIMEOUT 60000"]
        return f"ATTACH 'ducklake:{catalog}' AS lake ({', '.join(options)})"

    def close(self) -> None:
        self._db.close()

    def native(self, files: Sequence[Facts]) -> Native:
        return [[f.day, f.bounds[0][0], f.bounds[1][0], f.bounds[2][0]] for f in files]

    def commit(self, table: int, files: Native) -> None:
        if self.style == "addfile":
            self._db.execute(self._add_file)
        else:
            self._db.execute(f"INSERT INTO lake.t{table} VALUES (?, ?, ?, ?)", files[0])

    def commit_each(self, files: Native, tables: int) -> None:
        self._db.execute("BEGIN")
        for table in range(tables):
            self._db.execute(f"INSERT INTO lake.t{table} VALUES (?, ?, ?, ?)", files[table])
        self._db.execute("COMMIT")

    def register(self, folder: Path) -> None:
        self._db.execute(f"CREATE TABLE lake.t0 {COLUMNS}")
        self._db.execute(f"CALL ducklake_add_data_files('lake', 't0', '{folder}/*.parquet')")

    def count(self, table: int) -> int:
        row = self._db.execute(f"SELECT count(*) FROM lake.t{table}").fetchone()
        return int(row[0]) if row else 0


def ducklake_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection with the DuckLake extensions loaded from their wheels."""
    # Otherwise DuckDB searches for an unknown extension on the network for seconds.
    db = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    db.execute("SET enable_progress_bar = false")
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        folder = Path(next(iter(package.__path__)))
        extension = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        db.execute(f"LOAD '{folder / extension}'")
    return db
