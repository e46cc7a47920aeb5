"""deltasql itself, through its public API and nothing else."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from benchmarks.harness import Contender, Native
from benchmarks.workload import PARTITION_BY, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.workload import Facts


def available() -> bool:
    """Tell whether this build of deltasql has a catalog to commit to."""
    module = importlib.import_module("deltasql")
    return hasattr(module, "connect") and hasattr(module, "begin")


class Deltasql(Contender):
    """Staged AddFiles through `deltasql.begin`, mirror off, the catalog's default durability."""

    def __init__(self, backend: str, folder: Path, database: str = "") -> None:
        self.backend = backend
        self.name = f"deltasql-{backend}"
        self.folder = folder
        self.database = database
        if backend == "duckdb":
            self.max_commits = 10_000

    @property
    def uri(self) -> str:
        """The catalog's URI; the PostgreSQL host and user come from PG* variables."""
        return {
            "sqlite": f"deltasql://sqlite/{self.folder}/meta.db?mirror=off",
            "duckdb": f"deltasql://duckdb/{self.folder}/meta.duckdb?mirror=off",
            "postgres": f"deltasql://postgres/{self.database}/bench?mirror=off",
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

    def connect(self) -> None:
        import deltasql

        self._deltasql = deltasql
        self.errors = (deltasql.TxnLogError,)
        self._catalog = deltasql.connect(self.uri)

    def close(self) -> None:
        self._catalog.close()

    def native(self, files: Sequence[Facts]) -> Native:
        from deltasql.model.actions import AddFile

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
        with self._deltasql.begin(self._catalog) as transaction:
            transaction.stage_table(f"t{table}", files)

    def commit_each(self, files: Native, tables: int) -> None:
        with self._deltasql.begin(self._catalog) as transaction:
            for table in range(tables):
                transaction.stage_table(f"t{table}", files[table : table + 1])

    def count(self, table: int) -> int:
        return len(self._catalog.table(f"t{table}").files())

    def gaps(self, table: int) -> int:
        # Version 0 creates the table, each commit after it adds one file.
        return int(self._catalog.table(f"t{table}").version) - self.count(table)
