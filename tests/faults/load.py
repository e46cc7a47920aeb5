"""Writers and readers that run during faults and record their acknowledgements.

A transaction writes three tables: the same new row to two of them, and its number to the third, by
append, merge or overwrite of the writer's row. So a reader can detect a partial transaction, and
the final check a lost or duplicated one.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import deltasql
from deltasql.exceptions import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    RetriesExhaustedError,
    TxnLogStoreError,
)
from tests.commit.support import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

TWINS = ("a", "b")
ROW = pa.schema([("writer", pa.string()), ("number", pa.int64())])


@dataclass(slots=True)
class Outcomes:
    """The outcomes that a writer recorded for its transactions, by number."""

    acknowledged: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, out: Path) -> Outcomes:
        """Read the outcomes of a writer; a killed writer may leave a partial line."""
        outcomes = cls()
        for line in out.read_text().splitlines() if out.exists() else ():
            try:
                number, kind, text = json.loads(line)
            except ValueError:
                continue
            if kind == "failed":
                outcomes.failed[number] = text
            else:
                getattr(outcomes, kind).append(number)
        return outcomes


def open_lake(uri: DeltaSqlUri, folder: Path, **settings: Any) -> Catalog:
    """Open the catalog whose tables are in a folder; commits are published synchronously."""
    given = {"table": {"data_root": str(folder / "lake")}, "pool": {"timeout_s": 30}}
    return deltasql.connect(uri, **{**given, **settings})


def create(catalog: Catalog, writers: Sequence[str]) -> None:
    """Create the three tables; every writer has a row and a partition in the third."""
    for name in TWINS:
        catalog.create_table(name, ROW)
    catalog.create_table("last", ROW, partition_by=["writer"])
    with catalog.begin() as tx:
        tx.write("last", pa.table({"writer": list(writers), "number": [-1] * len(writers)}, ROW))


def write(uri: DeltaSqlUri, folder: Path, writer: str) -> None:
    """Run transactions until the stop file exists; any unexpected error ends the process."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it logs every attempt
    with (folder / f"{writer}.outcomes").open("a") as out, open_lake(uri, folder) as catalog:
        for number in count():
            if (folder / "stop").exists():
                return
            kind, text = _one(catalog, writer, number)
            out.write(json.dumps([number, kind, text]) + "\n")
            out.flush()


def _one(catalog: Catalog, writer: str, number: int) -> tuple[str, str]:
    row = pa.table({"writer": [writer], "number": [number]}, ROW)
    try:
        with catalog.begin() as tx:
            for name in TWINS:
                tx.write(name, row)
            if number % 2:
                same = f"t.writer = s.writer AND t.writer = '{writer}'"
                merger = tx.merge("last", row, same, source_alias="s", target_alias="t")
                merger.when_matched_update_all().execute()
            else:
                tx.write("last", row, mode="overwrite", predicate=f"writer = '{writer}'")
    except CommitOutcomeUnknownError as error:
        return "unknown", type(error).__name__
    except CommitConflictError as error:
        return "failed", type(error).__name__
    except (TxnLogStoreError, RetriesExhaustedError) as error:
        # Any other error ends the process and fails the test.
        time.sleep(0.05)
        return "failed", type(error).__name__
    return "acknowledged", ""


def read(uri: DeltaSqlUri, folder: Path, writers: Sequence[str], name: str) -> None:
    """Read all tables in one snapshot repeatedly; record how many reads succeeded and failed."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    good = failed = 0
    with open_lake(uri, folder) as catalog:
        while not (folder / "stop").exists():
            before = {writer: Outcomes.of(folder / f"{writer}.outcomes") for writer in writers}
            try:
                with catalog.begin() as tx:
                    seen = {table: tx.read(table) for table in (*TWINS, "last")}
            except TxnLogStoreError:
                failed += 1
                time.sleep(0.05)
                continue
            problems = disagreements(seen, before)
            if problems:
                (folder / f"{name}.problems").write_text("\n".join(problems))
                return
            good += 1
    (folder / f"{name}.read").write_text(json.dumps([good, failed]))


def disagreements(seen: dict[str, pa.Table], outcomes: dict[str, Outcomes]) -> list[str]:
    """Return what is partial, duplicated or lost in tables that were read after these outcomes."""
    problems = []
    twins = [sorted(map(tuple, _rows(seen[name]))) for name in TWINS]
    if twins[0] != twins[1]:
        problems.append(f"partial: {set(twins[0]) ^ set(twins[1])} is in one table only")
    if len(set(twins[0])) != len(twins[0]):
        problems.append("duplicated: a row occurs twice")
    last = _rows(seen["last"])
    if sorted(writer for writer, _ in last) != sorted(outcomes):
        problems.append(f"the third table has other writers: {last}")
    for writer, number in last:
        found = {n for w, n in twins[0] if w == writer}
        if number != max(found, default=-1):
            problems.append(f"partial: {writer} is at {number}, its rows are up to {max(found)}")
        if lost := set(outcomes[writer].acknowledged) - found:
            problems.append(f"lost: {writer} {sorted(lost)}")
        if reappeared := set(outcomes[writer].failed) & found:
            why = {number: outcomes[writer].failed[number] for number in reappeared}
            problems.append(f"rows of failed transactions exist: {writer} {why}")
    return problems


def _rows(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table["writer"].to_pylist(), table["number"].to_pylist(), strict=True))


class Load:
    """Writers and readers in separate processes."""

    def __init__(self, uri: DeltaSqlUri, folder: Path, *, writers: int, readers: int) -> None:
        self.folder, self.writers = folder, [f"w{number}" for number in range(writers)]
        self.readers = [f"r{number}" for number in range(readers)]
        with open_lake(uri, folder) as catalog:
            create(catalog, self.writers)
        self._processes = [
            PROCESSES.Process(target=write, args=(uri, folder, name)) for name in self.writers
        ] + [
            PROCESSES.Process(target=read, args=(uri, folder, self.writers, name))
            for name in self.readers
        ]
        for process in self._processes:
            process.start()

    def outcomes(self) -> dict[str, Outcomes]:
        """Return the outcomes that the writers recorded so far."""
        return {writer: Outcomes.of(self.folder / f"{writer}.outcomes") for writer in self.writers}

    def wait_for_more(self, many: int) -> None:
        """Wait until every writer has so many more acknowledged transactions."""
        start = {writer: len(outcomes.acknowledged) for writer, outcomes in self.outcomes().items()}
        while any(len(t.acknowledged) < start[w] + many for w, t in self.outcomes().items()):
            assert all(process.is_alive() for process in self._processes), self.problems()
            time.sleep(0.02)

    def stop(self) -> None:
        """Let every process finish its current transaction."""
        (self.folder / "stop").touch()
        for process in self._processes:
            process.join(120)
            if process.is_alive():
                os.kill(process.pid or 0, 9)
        assert [process.exitcode for process in self._processes] == [0] * len(self._processes)

    def problems(self) -> str:
        """Return the problems that the readers found."""
        return "\n".join(path.read_text() for path in self.folder.glob("*.problems"))

    def reads(self) -> tuple[int, int]:
        """Return how many reads succeeded and how many failed with a typed error."""
        each = [json.loads((self.folder / f"{name}.read").read_text()) for name in self.readers]
        return sum(good for good, _ in each), sum(failed for _, failed in each)
