"""The record of a soak client: one line per operation."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from deltasql.exceptions import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    RetriesExhaustedError,
    TxnLogError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from tests.soak.ledger import Place

DONE, REFUSED, UNKNOWN, OUTLIVED, ERROR = "done", "refused", "unknown", "outlived", "error"


@dataclass(slots=True)
class Operation:
    """One operation; `details` is what it intended to change and `versions` what it read.

    `again` counts listings that missed a file and were repeated.
    """

    client: str
    kind: str
    start_s: float
    seconds: float = 0.0
    outcome: str = DONE
    txn_id: str | None = None
    committed: dict[str, int] = field(default_factory=dict)
    details: list[Any] = field(default_factory=list)
    error: str | None = None
    versions: dict[str, int] = field(default_factory=dict)
    again: int = 0


class Recorder:
    """Measures the operations of a client and records each when it has ended."""

    def __init__(self, client: str, out: TextIO, place: Place, catalog: Catalog) -> None:
        self.client, self.place = client, place
        self._out, self._catalog = out, catalog

    @contextmanager
    def operation(self, kind: str) -> Iterator[Operation]:
        """Run the block as one operation; an exception determines its outcome."""
        done = Operation(self.client, kind, time.time())
        start = time.perf_counter()
        try:
            yield done
        except (CommitConflictError, RetriesExhaustedError) as error:
            done.outcome, done.error = REFUSED, type(error).__name__
        except CommitOutcomeUnknownError as error:
            done.outcome, done.error = UNKNOWN, str(error)
        except Exception as error:
            done.outcome = OUTLIVED if self._is_past_retention(done, error) else ERROR
            done.error = f"{type(error).__name__}: {error}"
        done.seconds = time.perf_counter() - start
        line = {name: getattr(done, name) for name in Operation.__slots__}
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def _is_past_retention(self, done: Operation, error: Exception) -> bool:
        """Return whether the operation read a version whose files vacuum may have deleted."""
        if not isinstance(error, TxnLogError | OSError):
            return False
        for name, version in done.versions.items():
            table = self._catalog.table(name)
            if version == table.snapshot().version:
                continue
            ended_ms = table.snapshot(version + 1).committed_at_ms
            if time.time() * 1000 - ended_ms > 1000 * self.place.retention_s:
                return True
        return False


def load(folder: Path) -> list[Operation]:
    """Read the records of all clients, in the order of each client."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().split("\n")[:-1]:
            found.append(Operation(**json.loads(text)))
    return found
