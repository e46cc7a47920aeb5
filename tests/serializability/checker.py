"""Checks whether one order of transactions explains what every client read.

A table is the set of its live files: every version adds and removes some. The checks:

- an acknowledged transaction is in the log once, unchanged, in each of its tables; a rejected one
  is not in the log; one without a response is in all of its tables or in none;
- a read of a table at a version returns the files that the log has at that version;
- a transaction that reads and changes a table follows what it read: nothing is between, except
  blind appends if the isolation level allows them;
- across tables, a transaction reads one snapshot, no older than the commits that were acknowledged
  when it began (strict snapshot isolation). In the graph "must come before", no cycle has fewer
  than two edges of the kind "did not see".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.serializability.record import COMMITTED, FAILED, READ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.serializability.record import Transaction


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table, from its log."""

    txn_id: str
    adds: frozenset[str]
    removes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Log:
    """The versions of one table from 0, and whether its isolation level is Serializable."""

    versions: Sequence[Version]
    serializable: bool

    def states(self) -> list[frozenset[str]]:
        """Return the live files of every version."""
        live: frozenset[str] = frozenset()
        states = []
        for version in self.versions:
            live = (live - version.removes) | version.adds
            states.append(live)
        return states


def problems(transactions: Sequence[Transaction], logs: Mapping[str, Log]) -> list[str]:
    """Return everything that violates the guarantees; empty if there is nothing."""
    found = [*_outcomes(transactions, logs)]
    found += _reads(transactions, logs)
    if not found:  # the graph relies on the checks above
        found += _follows(transactions, logs)
        found += _Order(transactions, logs).problems()
    return found


def _outcomes(transactions: Sequence[Transaction], logs: Mapping[str, Log]) -> Iterator[str]:
    places: dict[str, dict[str, int]] = defaultdict(dict)
    for name, log in logs.items():
        for number, version in enumerate(log.versions):
            if name in places[version.txn_id]:
                yield f"{version.txn_id} is twice in {name}"
            places[version.txn_id][name] = number
    for each in transactions:
        there = places.get(each.txn_id, {})
        if each.outcome == FAILED and there:
            yield f"{each.txn_id} failed but is in {sorted(there)}"
        if each.outcome == COMMITTED and there != each.versions:
            yield f"{each.txn_id} was acknowledged at {each.versions}, the log has {there}"
        if there and there.keys() != each.tables:
            yield f"{each.txn_id} changes {sorted(each.tables)} and is only in {sorted(there)}"
        for name, number in there.items():
            version = logs[name].versions[number]
            expected = (each.adds.get(name, frozenset()), each.removes.get(name, frozenset()))
            if (version.adds, version.removes) != expected:
                yield f"{each.txn_id} is not in {name} as expected"


def _reads(transactions: Sequence[Transaction], logs: Mapping[str, Log]) -> Iterator[str]:
    states = {name: log.states() for name, log in logs.items()}
    for each in transactions:
        for name, (version, paths) in each.reads.items():
            if version >= len(states[name]):
                yield f"{each.txn_id} read {name} at {version}, which the log does not have"
            elif states[name][version] != paths:
                yield f"{each.txn_id} did not read {name} as version {version} has it"


def _follows(transactions: Sequence[Transaction], logs: Mapping[str, Log]) -> Iterator[str]:
    """Yield changes that do not directly follow the version they read, except for blind appends."""
    known = {each.txn_id: each for each in transactions}
    for name, log in logs.items():
        for number, version in enumerate(log.versions):
            each = known.get(version.txn_id)
            if each is None or name not in each.reads:
                continue
            for between in log.versions[each.reads[name][0] + 1 : number]:
                other = known.get(between.txn_id)
                is_blind = other is not None and name not in other.reads and not between.removes
                if log.serializable or not is_blind:
                    yield f"{each.txn_id} did not see {between.txn_id}, before it in {name}"


@dataclass(slots=True)
class _Order:
    """The graph "must come before"; edges of the kind "did not see" are stored separately.

    A reader saw all versions up to one and none after it: two chains of helper nodes per table
    express that with two edges per read. A chain of timestamps expresses real time.
    """

    transactions: Sequence[Transaction]
    logs: Mapping[str, Log]
    after: dict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    unseen: list[tuple[Transaction, str, int]] = field(default_factory=list)

    def problems(self) -> Iterator[str]:
        """Yield the cycles."""
        self._draw()
        order = self._sorted()
        if order is None:
            yield "transactions saw each other in a circle"
            return
        # The nodes after each node, as a bit set: each transaction has one bit.
        bit = {each.txn_id: 1 << number for number, each in enumerate(self.transactions)}
        reach: dict[object, int] = {}
        for node in reversed(order):
            bits = bit.get(node, 0) if isinstance(node, str) else 0
            for follower in self.after[node]:
                bits |= reach[follower]
            reach[node] = bits
        rest = {name: self._rest(log, reach) for name, log in self.logs.items()}
        for each, name, version in self.unseen:
            versions = self.logs[name].versions
            own = self._own(each, name)
            between = () if own is None else versions[version + 1 : own]
            unseen = rest[name][version + 1 if own is None else own + 1]
            for other in between:
                unseen |= reach[other.txn_id]
            if unseen & bit[each.txn_id]:
                yield (
                    f"{each.txn_id} read {name} at {version} and did not see a later version, "
                    "but something that came after that one"
                )

    @staticmethod
    def _rest(log: Log, reach: Mapping[object, int]) -> list[int]:
        """Return for every version what comes after it or after a later one."""
        bits = [0]
        for version in reversed(log.versions):
            bits.append(bits[-1] | reach[version.txn_id])
        return bits[::-1]

    def _own(self, each: Transaction, name: str) -> int | None:
        """Return the version that a transaction made of a table, acknowledged or not."""
        if each.outcome == COMMITTED:
            return each.versions.get(name)
        ids = [version.txn_id for version in self.logs[name].versions]
        return ids.index(each.txn_id) if each.txn_id in ids else None

    def _draw(self) -> None:
        written = {v.txn_id for log in self.logs.values() for v in log.versions}
        for name, log in self.logs.items():
            for number, version in enumerate(log.versions):
                self.after[version.txn_id].append((name, number))
                self.after[name, number - 1].append((name, number))
        events: list[tuple[int, int, Transaction]] = []
        for each in self.transactions:
            if each.outcome == FAILED or (each.outcome is None and each.txn_id not in written):
                continue  # its reads are checked individually
            self.after[each.txn_id]  # every transaction is a node
            for name, (version, _) in each.reads.items():
                self.after[name, version].append(each.txn_id)
                self.unseen.append((each, name, version))
            events.append((each.start_ns, 1, each))
            if each.end_ns is not None:
                events.append((each.end_ns, 0, each))
        events.sort(key=lambda event: event[:2])
        for number, (_, is_start, each) in enumerate(events):
            self.after["event", number - 1].append(("event", number))
            if is_start:
                self.after["event", number].append(each.txn_id)
            else:
                self.after[each.txn_id].append(("event", number))

    def _sorted(self) -> list[object] | None:
        """Return the nodes in topological order, or None if there is a cycle."""
        waits: dict[object, int] = dict.fromkeys(self.after, 0)
        for followers in list(self.after.values()):
            for follower in followers:
                waits[follower] = waits.get(follower, 0) + 1
        ready = [node for node, count in waits.items() if count == 0]
        order = []
        while ready:
            node = ready.pop()
            order.append(node)
            for follower in self.after.get(node, ()):
                waits[follower] -= 1
                if waits[follower] == 0:
                    ready.append(follower)
        return order if len(order) == len(waits) else None


def counts(transactions: Sequence[Transaction]) -> dict[str, int]:
    """Return the number of transactions by outcome."""
    found = {COMMITTED: 0, FAILED: 0, READ: 0, "no response": 0}
    for each in transactions:
        found[each.outcome or "no response"] += 1
    return found
