"""The peers: deltalake by path, and DuckLake on its three catalogs."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from benchmarks.harness import Contender, Native
from benchmarks.workload import MODIFIED_MS, PARTITION_BY, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.workload import Facts

DELTA_SCHEMA = Schema.from_arrow(SCHEMA)


class Deltalake(Contender):
    """Stock deltalake, as it comes: a fresh handle per commit, its own checkpoint interval."""

    name = "deltalake"
    backend = "path"
    errors = (DeltaError,)
    max_commits = 10_000

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, table: int) -> str:
        """Return where a table is."""
        return str(self.folder / f"t{table}")

    def create(self, tables: int = 1) -> None:
        for table in range(tables):
            DeltaTable.create(self.path(table), DELTA_SCHEMA, partition_by=PARTITION_BY)

    def connect(self) -> None:
        pass

    def close(self) -> None:
        pass

    def native(self, files: Sequence[Facts]) -> Native:
        return [
            AddAction(
                path=f.path,
                size=f.size,
                partition_values={"day": f.day},
                modification_time=f.modified_ms,
                data_change=True,
                stats=f.stats,
            )
            for f in files
        ]

    def commit(self, table: int, files: Native) -> None:
        DeltaTable(self.path(table)).create_write_transaction(
            files, mode="append", schema=DELTA_SCHEMA, partition_by=PARTITION_BY
        )

    def commit_each(self, files: Native, tables: int) -> None:
        # Ten commits, one after the other: deltalake has no transaction over tables.
        for table in range(tables):
            self.commit(table, files[table : table + 1])

    def count(self, table: int) -> int:
        return len(DeltaTable(self.path(table)).file_uris())

    def gaps(self, table: int) -> int:
        log = Path(self.path(table)) / "_delta_log"
        found = len(list(log.glob("*.json")))
        return int(DeltaTable(self.path(table)).version()) + 1 - found

    def advance(self, table: int, files: Iterable[Facts]) -> None:
        """Write the commits as files, as deltalake would, and let it make the checkpoint.

        Committing ten thousand times through the API takes ten minutes and ends in this state,
        save for the older checkpoints, which only make its listing longer.
        """
        log = Path(self.path(table)) / "_delta_log"
        head = DeltaTable(self.path(table)).version()
        info = {"timestamp": MODIFIED_MS, "operation": "WRITE", "clientVersion": "delta-rs"}
        for version, file in enumerate(files, head + 1):
            lines = [{"commitInfo": info}, {"add": add_json(file)}]
            text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
            (log / f"{version:020d}.json").write_text(text)
        self.checkpoint(table)

    def checkpoint(self, table: int) -> None:
        """Write a checkpoint of the newest version."""
        DeltaTable(self.path(table)).create_checkpoint()

    def open(self) -> Native:
        return DeltaTable(self.path(0))

    def list_files(self, handle: Native) -> int:
        return len(handle.get_add_actions())

    def plan(self, handle: Native, predicate: str) -> int:
        return len(handle.file_uris(file_pruning_predicate=predicate))


def add_json(file: Facts) -> dict[str, Any]:
    """Return a file as the body of Delta's add action."""
    return {
        "path": file.path,
        "partitionValues": {"day": file.day},
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": file.stats,
    }


class DuckLake(Contender):
    """DuckLake: an insert of one small row is a commit of one file.

    As shipped it keeps small inserts inside the catalog (inlining), so no Parquet is written
    and the commit is all metadata; `style="parquet"` turns that off, and `style="addfile"`
    registers a Parquet file that already exists.
    """

    max_commits = 1_000
    errors = (duckdb.Error,)

    def __init__(self, backend: str, where: Path | str, *, style: str = "inline") -> None:
        self.backend = backend
        self.style = style
        self.name = f"ducklake-{backend}" + ("" if style == "inline" else f"-{style}")
        # A folder, or for PostgreSQL the folder of the data and the name of the database.
        self.folder = Path(where)
        self.database = ""

    def on_database(self, database: str) -> DuckLake:
        """Keep the catalog in this PostgreSQL database."""
        self.database = database
        return self

    def create(self, tables: int = 1) -> None:
        self.connect()
        if self.style != "inline":
            self._db.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        for table in range(tables):
            self._db.execute(
                f"CREATE TABLE lake.t{table} (day VARCHAR, id BIGINT, code BIGINT, amount DOUBLE)"
            )
        one = self.folder / "one.parquet"
        self._db.execute(
            f"COPY (SELECT 'd0000' AS day, 1::BIGINT AS id, 1::BIGINT AS code, 1::DOUBLE AS amount)"
            f" TO '{one}' (FORMAT parquet)"
        )
        self._add_file = f"CALL ducklake_add_data_files('lake', 't0', '{one}')"

    def connect(self) -> None:
        self._db = ducklake_connection()
        self._db.execute(self.attach_sql())

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with the catalog attached as `lake`."""
        return self._db

    def open(self) -> Native:
        self.connect()
        return self._db

    def plan(self, handle: Native, predicate: str) -> int:
        # EXPLAIN does not look for files. The first row needs the plan and one open file;
        # LIMIT keeps the rest closed.
        return len(handle.execute(f"SELECT id FROM lake.t0 WHERE {predicate} LIMIT 1").fetchall())

    def attach_sql(self) -> str:
        """Return the statement that opens the catalog."""
        catalog = {
            "duckdb": f"{self.folder}/lake.duckdb",
            "sqlite": f"sqlite:{self.folder}/lake.sqlite",
            "postgres": f"postgres:dbname={self.database}",
        }[self.backend]
        # WAL and a patient busy handler are what its SQLite catalog needs to do its best.
        options = ", META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 60000"
        return (
            f"ATTACH 'ducklake:{catalog}' AS lake (DATA_PATH '{self.folder}/data'"
            f"{options if self.backend == 'sqlite' else ''})"
        )

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

    def count(self, table: int) -> int:
        row = self._db.execute(f"SELECT count(*) FROM lake.t{table}").fetchone()
        return int(row[0]) if row else 0


def ducklake_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection with DuckLake and its catalogs loaded from their wheels."""
    # Without this an unknown extension is looked for on the network, for seconds.
    db = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        folder = Path(next(iter(package.__path__)))
        extension = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        db.execute(f"LOAD '{folder / extension}'")
    db.execute("SET enable_progress_bar = false")
    return db
