"""deltalake, the peer that opens tables by path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, Schema, convert_to_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from benchmarks.harness import Contender, Native
from benchmarks.workload import MODIFIED_MS, PARTITION_BY, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.workload import Facts

DELTA_SCHEMA = Schema.from_arrow(SCHEMA)


class Deltalake(Contender):
    """deltalake with its default settings; every commit opens the table again."""

    name = "deltalake"
    backend = "path"
    errors = (DeltaError,)
    max_commits = 10_000

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, table: int) -> str:
        """Return the path of a table."""
        return str(self.folder / f"t{table}")

    def create(self, tables: int = 1) -> None:
        for table in range(tables):
            DeltaTable.create(self.path(table), DELTA_SCHEMA, partition_by=PARTITION_BY)

    def prepare(self) -> None:
        """Do nothing: this module imports everything."""

    def connect(self) -> None:
        """Do nothing: a path needs no connection."""

    def close(self) -> None:
        """Do nothing: a path needs no connection."""

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
        # One commit per table: deltalake has no transactions over several tables.
        for table in range(tables):
            self.commit(table, files[table : table + 1])

    def count(self, table: int) -> int:
        return len(DeltaTable(self.path(table)).file_uris())

    def gaps(self, table: int) -> int:
        log = Path(self.path(table)) / "_delta_log"
        found = len(list(log.glob("*.json")))
        return int(DeltaTable(self.path(table)).version()) + 1 - found

    def advance(self, table: int, files: Iterable[Facts]) -> None:
        """Write the commit files directly and let deltalake write the checkpoint.

        Ten thousand commits through the API take ten minutes and give the same state, except for
        older checkpoints, which only make the listing longer.
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
        """Write a checkpoint of the latest version."""
        DeltaTable(self.path(table)).create_checkpoint()

    def register(self, folder: Path) -> None:
        # The log is always in the folder of the files.
        convert_to_deltalake(folder)

    def open(self) -> Native:
        return DeltaTable(self.path(0))

    def refresh(self, handle: Native) -> Native:
        handle.update_incremental()
        return handle

    def list_files(self, handle: Native) -> int:
        return len(handle.file_uris())

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


class DeltalakeWithoutFiles(Deltalake):
    """deltalake with `without_files`, its fastest way to open a table without listing it."""

    name = "deltalake-without-files"

    def open(self) -> Native:
        return DeltaTable(self.path(0), without_files=True)
