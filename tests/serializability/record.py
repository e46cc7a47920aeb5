"""The record of a client: one line before a transaction commits, one when it has ended."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from tests.serializability.rows import Change

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

COMMITTED, FAILED, READ = "committed", "failed", "read"


@dataclass(slots=True)
class Transaction:
    """A transaction as its client knows it; `end_ns` and `outcome` are None without a response."""

    txn_id: str
    start_ns: int
    reads: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    adds: dict[str, frozenset[str]] = field(default_factory=dict)
    removes: dict[str, frozenset[str]] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    outcome: str | None = None
    versions: dict[str, int] = field(default_factory=dict)
    end_ns: int | None = None

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it changes."""
        return frozenset(name for name in self.adds.keys() | self.removes.keys())


class Recorder:
    """Appends lines to a client's file; a killed client may leave a partial last line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def record_start(self, transaction: Transaction) -> None:
        """Record what is about to be committed."""
        self._write(
            {
                "txn": transaction.txn_id,
                "start": transaction.start_ns,
                "reads": {
                    name: [version, sorted(paths)]
                    for name, (version, paths) in transaction.reads.items()
                },
                "adds": {name: sorted(paths) for name, paths in transaction.adds.items()},
                "removes": {name: sorted(paths) for name, paths in transaction.removes.items()},
                "changes": {name: change.to_json() for name, change in transaction.changes.items()},
            }
        )

    def record_end(self, txn_id: str, outcome: str, versions: dict[str, int]) -> None:
        """Record the outcome."""
        end = time.monotonic_ns()
        self._write({"txn": txn_id, "outcome": outcome, "versions": versions, "end": end})

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


def load(files: Iterable[Path]) -> list[Transaction]:
    """Read the records of all clients."""
    found: dict[str, Transaction] = {}
    for path in files:
        # Ignore the partial line that a killed client may have left.
        for text in path.read_text().split("\n")[:-1]:
            line = json.loads(text)
            if "start" in line:
                found[line["txn"]] = Transaction(
                    line["txn"],
                    line["start"],
                    {n: (v, frozenset(paths)) for n, (v, paths) in line["reads"].items()},
                    {n: frozenset(paths) for n, paths in line["adds"].items()},
                    {n: frozenset(paths) for n, paths in line["removes"].items()},
                    {n: Change.from_json(change) for n, change in line["changes"].items()},
                )
            else:
                transaction = found[line["txn"]]
                transaction.outcome, transaction.versions = line["outcome"], line["versions"]
                transaction.end_ns = line["end"]
    return list(found.values())
