"""deltasql, through its public API only."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import deltasql
from benchmarks.harness import Contender, Native
from benchmarks.workload import PARTITION_BY, SCHEMA
from deltasql.exceptions import TxnLogError
from deltasql.model.actions import AddFile
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.workload import Facts

# DuckDB imports pandas when it binds its first parameter.
DRIVERS = {
    "sqlite": ("sqlite3",),
    "postgres": ("deltasql.store.postgres.dialect",),
    "duckdb": ("deltasql.store.duckdb", "pandas"),
}

# Modules that an operation imports on first use.
LATE = {
    "plan": "deltasql.model.predicates.predicate",
    "checkpoint": "deltasql.mirror.checkpoint.write",
}

# The names of these modules in 0.1.0, which `benchmarks.before_after` measures, too.
NAMES_IN_0_1_0 = {
    "deltasql.api.catalog.connect": "deltasql.api.connect",
    "deltasql.store.postgres.dialect": "deltasql.store.postgres",
    "deltasql.model.predicates.predicate": "deltasql.model.predicate",
    "deltasql.mirror.checkpoint.write": "deltasql.mirror.checkpoint",
}


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        importlib.import_module(NAMES_IN_0_1_0[module])


class Deltasql(Contender):
    """Commits AddFiles through `deltasql.begin`, with the catalog's default durability."""

    errors = (TxnLogError,)

    def __init__(
        self, backend: str, folder: Path, database: str = "", *, mirror: str = "off"
    ) -> None:
        self.backend = backend
        self.name = f"deltasql-{backend}" + ("" if mirror == "off" else f"-{mirror}")
        self.mirror = mirror
        self.folder = folder
        self.database = database
        if backend == "duckdb":
            self.max_commits = 10_000

    @property
    def uri(self) -> str:
        """The catalog's URI; the PostgreSQL host and user come from the PG* variables."""
        return {
            "sqlite": f"deltasql://sqlite/{self.folder}/meta.db?mirror={self.mirror}",
            "duckdb": f"deltasql://duckdb/{self.folder}/meta.duckdb?mirror={self.mirror}",
            "postgres": f"deltasql://postgres/{self.database}/bench?mirror={self.mirror}",
        }[self.backend]

    def create(self, tables: int = 1) -> None:
        self.connect()
        for table in range(tables):
            self._catalog.create_table(
                f"t{table}",
                SCHEMA,
                partition_by=PARTITION_BY,
                location=str(self.folder / "data" / f"t{table}"),
            )

    def prepare(self) -> None:
        # deltasql imports these late; the import must not be part of a measured open.
        for module in ("deltasql.api.catalog.connect", *DRIVERS[self.backend]):
            _import(module)

    def prepare_to(self, action: str) -> None:
        self.prepare()
        if action in LATE:
            _import(LATE[action])

    def connect(self) -> None:
        self._catalog = deltasql.connect(self.uri)

    def open(self) -> Native:
        self.connect()
        return self.reopen(None)

    def reopen(self, handle: Native) -> Native:
        snapshot = self._catalog.table("t0").snapshot()
        # Opening includes version, schema and protocol, because deltalake also has these after
        # opening.
        return snapshot if snapshot.schema and snapshot.protocol else None

    def list_files(self, handle: Native) -> int:
        return len(handle.file_paths())

    def plan(self, handle: Native, predicate: str) -> int:
        return len(handle.scan(predicate).arrow)

    def close(self) -> None:
        self._catalog.close()

    def native(self, files: Sequence[Facts]) -> Native:
        return [
            AddFile(
                path=f.path,
                partition_values={"day": f.day},
                size=f.size,
                modification_time=f.modified_ms,
                stats=f.stats,
            )
            for f in files
        ]

    def commit(self, table: int, files: Native) -> None:
        with deltasql.begin(self._catalog) as transaction:
            transaction.stage_table(f"t{table}", files)

    def publish(self) -> bool:
        return self.mirror == "off" or self._catalog.mirror.flush()

    def register(self, folder: Path) -> None:
        table = parse_uri(self.uri).with_table("t0")
        deltasql.convert_to_deltalake(f"{table}&location={folder}")

    def commit_each(self, files: Native, tables: int) -> None:
        with deltasql.begin(self._catalog) as transaction:
            for table in range(tables):
                transaction.stage_table(f"t{table}", files[table : table + 1])

    def count(self, table: int) -> int:
        return len(self._catalog.table(f"t{table}").files())

    def gaps(self, table: int) -> int:
        # Version 0 creates the table; each later version adds one file.
        return int(self._catalog.table(f"t{table}").snapshot().version) - self.count(table)
