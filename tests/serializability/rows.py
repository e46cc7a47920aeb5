"""Checks whether the rows of a table follow from its committed changes.

A change is a function from rows to rows: append, overwrite, overwrite of a partition, merge. The
rows of a version must be the result of the changes in some order:

- under Serializable, in the order of the versions;
- under WriteSerializable, a blind append may be later than its version: after commits that did not
  see it, and before those that did. All other changes keep the order of the versions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.serializability.record import Transaction

APPEND, OVERWRITE, REPLACE, INSERT, UPSERT = "append", "overwrite", "replace", "insert", "upsert"
KINDS = (APPEND, OVERWRITE, REPLACE, INSERT, UPSERT)
_MOST_CHECKED = 20

Row = tuple[int, str, str]
"""A key, its partition, and the writer of the row."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a table's rows by a transaction, and the version that it read."""

    kind: str
    rows: tuple[Row, ...]
    read_version: int
    part: str | None = None
    """The partition that REPLACE replaces."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "rows": self.rows,
            "read_version": self.read_version,
            "part": self.part,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Change:
        rows = tuple((key, part, by) for key, part, by in found["rows"])
        return cls(found["kind"], rows, found["read_version"], found["part"])

    def apply(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of a table after the change."""
        new = {row[0]: row for row in self.rows}
        match self.kind:
            case "append":
                return [*rows, *self.rows]
            case "overwrite":
                return list(self.rows)
            case "replace":
                return [*(row for row in rows if row[1] != self.part), *self.rows]
            case "insert":
                known = {row[0] for row in rows}
                return [*rows, *(row for row in self.rows if row[0] not in known)]
            case _:
                updated = [new.get(row[0], row) for row in rows]
                known = {row[0] for row in rows}
                return [*updated, *(row for row in self.rows if row[0] not in known)]

    def depends_on(self, rows: Sequence[Row]) -> bool:
        """Return whether the change depends on any of these rows, or removes one."""
        keys = {row[0] for row in self.rows}
        match self.kind:
            case "append":
                return False
            case "overwrite":
                return True
            case "replace":
                return any(row[1] == self.part for row in rows)
            case _:
                return any(row[0] in keys for row in rows)


@dataclass(frozen=True, slots=True)
class RowLog:
    """The transaction of each version of a table, and the resulting rows."""

    versions: Sequence[tuple[str, Counter[Row]]]
    serializable: bool


def row_problems(transactions: Sequence[Transaction], tables: Mapping[str, RowLog]) -> list[str]:
    """Return the tables whose rows no order of the changes explains; empty if there are none."""
    return [
        problem
        for name, log in tables.items()
        for problem in _problems(name, log, {each.txn_id: each for each in transactions})
    ]


def kinds(transactions: Sequence[Transaction]) -> dict[str, int]:
    """Return the number of attempted changes by kind."""
    return dict(Counter(change.kind for each in transactions for change in each.changes.values()))


def _problems(name: str, log: RowLog, known: Mapping[str, Transaction]) -> Iterator[str]:
    changes = {
        number: known[txn_id].changes[name]
        for number, (txn_id, _) in enumerate(log.versions)
        if txn_id in known and name in known[txn_id].changes
    }
    numbers = sorted(changes)
    step = max(1, len(numbers) // _MOST_CHECKED)
    ends = numbers if log.serializable else [*numbers[::step], *numbers[-1:]]
    rows: list[Row] = []
    for end in ends:
        committed = {number: change for number, change in changes.items() if number <= end}
        if log.serializable:
            rows = changes[end].apply(rows)
        else:
            try:
                order = [*_order(committed)]
            except CycleError as error:
                yield f"the changes of {name} up to version {end} have no order: {error.args[1]}"
                return
            rows = []
            for number in order:
                rows = changes[number].apply(rows)
        if Counter(rows) != log.versions[end][1]:
            yield (
                f"{name} has other rows at version {end} than its changes give: "
                f"{sorted((Counter(rows) - log.versions[end][1]).elements())} are missing, "
                f"{sorted((log.versions[end][1] - Counter(rows)).elements())} are too many"
            )
            return


def _order(changes: Mapping[int, Change]) -> Iterator[int]:
    """Order changes so that each is after all that it saw and before appends that it did not see.

    Changes other than appends form a chain, so one edge to the chain covers all that follow.
    """
    chain = [number for number, change in sorted(changes.items()) if change.kind != APPEND]
    graph: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(sorted(changes), ()))
    for before, after in pairwise(chain):
        graph.add(after, before)
    for number, change in changes.items():
        if change.kind != APPEND:
            continue
        place = bisect_left(chain, number)
        if place:
            graph.add(number, chain[place - 1])
        later = chain[place:]
        saw = next((each for each in later if changes[each].read_version >= number), None)
        if saw is not None:
            graph.add(saw, number)
        for each in later:
            if changes[each].read_version < number and changes[each].depends_on(change.rows):
                graph.add(number, each)
    return iter(graph.static_order())
