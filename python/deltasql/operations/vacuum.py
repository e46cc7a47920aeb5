"""VACUUM: which files no retained version needs, known from SQL without a listing.

A version is retained while it, or its successor, is younger than the retention. What only older
versions need may go: removed data files with their deletion vectors, change data, and files that
a transaction wrote long ago and never committed. A full vacuum also lists what nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError, TxnLogStorageError, VersionNotFoundError
from deltasql.exceptions.prefixes import GENERIC_ERROR, KERNEL_ERROR
from deltasql.model.clock import now_ms
from deltasql.model.deletion_vector import vector_file
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.operations.strays import StrayRule, find_strays, linked_nowhere
from deltasql.store.records import load, load_dv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from deltasql.operations.strays import FindStrays
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage
    from deltasql.store.dialect import Row

MARK, RETAINED, KEPT = "vacuumedBefore", "vacuumRetained", "vacuumKept"
"""Keys in the commitInfo of a finished vacuum: what was removed before that moment, and up to the
first retained version, is deleted, but for the files of the kept versions."""
_MILLISECOND = timedelta(milliseconds=1)
# A transaction may still be writing what it announced, whatever retention was asked for.
_INTENT_GRACE = timedelta(hours=1)
# Commits in quick succession are ahead of the clock by less than this.
_AHEAD = timedelta(minutes=1)
_PAGE = 100_000  # ids of files that are read at once
_NO_END = 2**62


@dataclass(slots=True)
class VacuumPlan:
    """What a vacuum deletes, and what it tells of itself."""

    retention: timedelta
    default_retention: timedelta
    enforced: bool
    before_ms: int
    sizes: dict[str, int] = field(default_factory=dict)
    """Names of files below the table's location, with their sizes as far as they are known."""
    intents: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Transaction and path of what was announced and never committed, with the names of its files:
    those that nothing else lets go."""
    keep_versions: tuple[int, ...] = ()
    first_retained: int = -1

    @property
    def files(self) -> list[str]:
        return list(self.sizes)

    def parameters(self) -> dict[str, str]:
        """Return what VACUUM START tells of it."""
        return {
            "retentionCheckEnabled": str(self.enforced).lower(),
            "specifiedRetentionMillis": str(self.retention // _MILLISECOND),
            "defaultRetentionMillis": str(self.default_retention // _MILLISECOND),
        }

    def mark(self) -> dict[str, Any]:
        """Return what VACUUM END leaves for the next one."""
        kept = {KEPT: list(self.keep_versions)} if self.keep_versions else {}
        return {MARK: self.before_ms, RETAINED: self.first_retained, **kept}

    def keep(self, intents: Iterable[tuple[str, str]]) -> None:
        """Leave to their transactions what they announced."""
        for intent in intents:
            for name in self.intents.pop(intent):
                self.sizes.pop(name, None)

    def metrics(self) -> dict[str, int]:
        """Return what VACUUM START counts."""
        return {"numFilesToDelete": len(self.sizes), "sizeOfDataToDelete": sum(self.sizes.values())}


def plan_vacuum(
    snapshot: Snapshot,
    storage: Storage,
    *,
    retention: timedelta | None = None,
    enforce_retention_duration: bool = True,
    full: bool = False,
    keep_versions: Sequence[int] = (),
    foreign: Iterable[str] = (),
    database: str | None = None,
    find: FindStrays = find_strays,
    meter: Meter | None = None,
) -> VacuumPlan:
    """Find what can be deleted; nothing is.

    `foreign` are locations of others, and `database` is a file that has others of its name beside
    it: they may lie below the table's location. `find` lists what is there.
    """
    default = TableProperties(snapshot.metadata.configuration).deleted_file_retention
    wanted = default if retention is None else retention
    if enforce_retention_duration and wanted < default:
        raise TxnLogError(
            "Invalid retention period, minimum retention for vacuum is configured to be greater "
            f"than {default // timedelta(hours=1)} hours, got {wanted // timedelta(hours=1)} hours",
            prefix=GENERIC_ERROR,
            help="Set enforce_retention_duration=False, or give --force to `deltasql vacuum`, "
            "if no reader or writer needs older files.",
        )
    now = now_ms()
    # A commit's time can be ahead of the clock: each is later than the one before it. One that is
    # far ahead comes from a clock that is wrong, and must not make everything look old.
    head_ms = min(max(now, snapshot.committed_at_ms), now + _AHEAD // _MILLISECOND)
    plan = VacuumPlan(wanted, default, enforce_retention_duration, head_ms - wanted // _MILLISECOND)
    plan.keep_versions = tuple(keep_versions)
    search = _Search(snapshot, storage, plan.before_ms, keep_versions)
    plan.first_retained = search.first_retained
    for name, size in (*search.tombstones(), *search.change_data()):
        plan.sizes.setdefault(name, size)
    announced = search.announced()
    for txn_id, path, name, at_ms in announced:
        if at_ms <= min(plan.before_ms, now - _INTENT_GRACE // _MILLISECOND):
            # An engine may announce a folder of its own and all that comes into it.
            inside = storage.list(name) if name.endswith("/") else ()
            found = {each.name: each.size for each in inside} or {name.rstrip("/"): 0}
            plan.intents[txn_id, path] = frozenset(found) - plan.sizes.keys()
            plan.sizes = {**found, **plan.sizes}
    if full:
        before_ms = now - wanted // _MILLISECOND
        told = meter or Meter()
        strays = list(search.strays(before_ms, foreign, database, find, told))
        # What was announced while the folder was listed is no stray, however old it looks.
        known = frozenset(name for _, _, name, _ in (*announced, *search.announced()))
        folders = tuple(name for name in known if name.endswith("/"))
        for name, size in strays:
            if name not in known and not name.startswith(folders):
                plan.sizes.setdefault(name, size)
    _spare(plan, search)
    return plan


def spare_needed(plan: VacuumPlan, snapshot: Snapshot, storage: Storage) -> None:
    """Take out of the plan what commits brought back since it was made."""
    _spare(plan, _Search(snapshot, storage, plan.before_ms, plan.keep_versions))


def _spare(plan: VacuumPlan, search: _Search) -> None:
    needed = search.needed_of(plan.sizes.keys()) if plan.sizes else frozenset()
    # A log can name a file behind a link as well as a listing can find it there.
    is_inside = linked_nowhere(search.snapshot.table.location)
    plan.sizes = {
        name: size for name, size in plan.sizes.items() if name not in needed and is_inside(name)
    }


@dataclass(frozen=True, slots=True)
class _LastVacuum:
    """Up to where everything was deleted before, but for the files of kept versions."""

    retained: int = -1
    before_ms: int = -1
    kept: tuple[int, ...] = ()


class _Search:
    """Files of one table, by what SQL and the storage know of them."""

    def __init__(
        self, snapshot: Snapshot, storage: Storage, before_ms: int, keep_versions: Sequence[int]
    ) -> None:
        self.snapshot, self.storage, self.before_ms = snapshot, storage, before_ms
        self.store, self.table_id = snapshot.store, snapshot.table.table_id
        self.keep_versions = keep_versions
        self.first_retained = self._version_at(before_ms)
        for version in keep_versions:
            if not self.store.query("head_at_version", table_id=self.table_id, version=version):
                raise VersionNotFoundError(
                    f"LogSegment end version {snapshot.version} not the same as the specified end "
                    f"version {version}: {snapshot.table.full_name} "
                    f"has no version {version} to keep",
                    version=version,
                    prefix=GENERIC_ERROR + KERNEL_ERROR,
                    latest=snapshot.version,
                )

    def tombstones(self) -> Iterator[tuple[str, int]]:
        """Yield files that were removed before the retention, and their deletion vectors."""
        last = self._last_vacuum
        rows = self.store.query(
            "tombstones_between",
            table_id=self.table_id,
            before_ms=self.before_ms,
            after_version=last.retained,
            after_ms=last.before_ms,
        )
        for version in last.kept:
            rows += self.store.query("files_at", table_id=self.table_id, version=version)
        for path, size, vector in rows:
            yield from ((name, size) for name in self._names(path))
            yield from ((name, 0) for name in self._names(_vector_path(vector)))

    def change_data(self) -> Iterator[tuple[str, int]]:
        """Yield the change data of versions that are not retained."""
        first, last = self._last_vacuum.retained, self.first_retained
        spans = [(first, last), *((kept, kept + 1) for kept in self._last_vacuum.kept)]
        for start, end in spans:
            rows = self.store.query(
                "change_files_between", table_id=self.table_id, first=start, before=min(end, last)
            )
            for version, path, size in rows:
                if version not in self.keep_versions:
                    yield from ((name, size) for name in self._names(path))

    def announced(self) -> list[tuple[str, str, str, int]]:
        """Return (transaction, path, name, time) of files that wait for their commit."""
        prefix = f"{self.snapshot.table.location}/"
        return [
            (txn_id, path, path.removeprefix(prefix), at_ms)
            for txn_id, path, at_ms in self.store.query("staged_files_of", table_id=self.table_id)
            if path.startswith(prefix)
        ]

    def strays(
        self,
        before_ms: int,
        foreign: Iterable[str],
        database: str | None,
        find: FindStrays,
        meter: Meter,
    ) -> Iterator[tuple[str, int]]:
        """Yield old files that lie in the table's folder, whoever put them there."""
        location = self.snapshot.table.location
        rule = StrayRule(location, before_ms, tuple(self.snapshot.partition_columns))
        found = find(rule, self.storage, self.needed(), meter)
        below = [_below(location, each) for each in foreign]
        named = {each for each in below if each}
        others = tuple(found.tables | {f"{each}/" for each in named})
        beside = _below(location, database) if database else ""
        for name, size in found.sizes.items():
            if name in named or (beside and name.startswith(beside)):
                continue
            if not name.startswith(others):
                yield name, size

    def needed(self) -> frozenset[str]:
        """Return the names that a retained or kept version reaches."""
        return frozenset(name for path in self._needed_paths() for name in self._names(path))

    def needed_of(self, names: Set[str]) -> frozenset[str]:
        """Return those names that a retained or kept version reaches: few, of however many."""
        found: set[str] = set()
        for path in self._needed_paths():
            if "%" in path or ":" in path or path.startswith("/"):
                found.update(name for name in self._names(path) if name in names)
            elif path in names:  # what is neither encoded nor absolute is the name itself
                found.add(path)
        return frozenset(found)

    def _needed_paths(self) -> Iterator[str]:
        kept = (
            self.store.query("files_at", table_id=self.table_id, version=version)
            for version in self.keep_versions
        )
        for path, _, vector in chain(self._files_since(), chain.from_iterable(kept)):
            yield path
            if vector and (name := _vector_path(vector)) is not None:
                yield name
        changes = self.store.query(
            "change_files_since", table_id=self.table_id, version=max(self.first_retained, 0)
        )
        yield from (path for (path,) in changes)

    def _files_since(self) -> Iterator[Row]:
        """Yield the files of the first retained version and of all later ones, page by page."""
        # Also of versions that came after the snapshot, whose ids are higher: the last is open.
        pages = range(0, max(1, self.snapshot.next_file_id), _PAGE)
        for first in pages:
            yield from self.store.query(
                "files_since",
                table_id=self.table_id,
                version=self.first_retained,
                first_file_id=first,
                next_file_id=_NO_END if first == pages[-1] else first + _PAGE,
            )

    def _version_at(self, timestamp_ms: int) -> int:
        """Return the version that was the latest at a moment; -1 before the first."""
        rows = self.store.query("head_at_time", table_id=self.table_id, timestamp_ms=timestamp_ms)
        return rows[0][1] if rows else -1

    @cached_property
    def _last_vacuum(self) -> _LastVacuum:
        rows = self.store.query("last_operation", table_id=self.table_id, operation="VACUUM END")
        told = (load(rows[0][1]) or {}) if rows else {}
        if MARK not in told:
            return _LastVacuum()
        # By its number: of several commits in one millisecond, only some may be retained.
        return _LastVacuum(int(told.get(RETAINED, -1)), int(told[MARK]), tuple(told.get(KEPT, ())))

    def _names(self, path: str | None) -> tuple[str, ...]:
        """Return the name below the table's location; none for a file of somebody else."""
        if path is None:
            return ()
        try:
            return (self.storage.data_name(path),)
        except TxnLogStorageError:
            return ()


def _vector_path(text: str) -> str | None:
    vector = load_dv(text)
    return None if vector is None else vector_file(vector)


def _below(location: str, other: str) -> str:
    """Return where a location lies below another one; empty when it does not.

    >>> _below("/lake/t", "/lake/t/inner"), _below("/lake/t", "/lake/u")
    ('inner', '')
    """
    here, there = location.rstrip("/") + "/", other.rstrip("/")
    return there.removeprefix(here) if there.startswith(here) else ""
