"""VACUUM: which files no retained version needs, known from SQL without a listing.

A version is retained while it, or its successor, is younger than the retention. What only older
versions need may go: removed data files with their deletion vectors, change data, and files that
a transaction wrote long ago and never committed. A full vacuum also lists what nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.clock import now_ms
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.operations.vacuum.search import (
    KEPT,
    MARK,
    RETAINED,
    SPARED,
    FileSearch,
    LastVacuum,
    needed_elsewhere,
    partition_names,
)
from deltasql.operations.vacuum.unreferenced import find_strays
from deltasql.storage.deletion import Deletable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltasql.operations.vacuum.unreferenced import FindStrays
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage

_MILLISECOND = timedelta(milliseconds=1)
# A transaction may still be writing what it announced, whatever retention was asked for.
INTENT_GRACE_MS = 3_600_000
# Commits in quick succession are ahead of the clock by less than this.
_AHEAD = timedelta(minutes=1)


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
    marked: LastVacuum | None = None
    """Up to where everything is deleted, where that is not all that was planned."""
    deletable: Deletable | None = None
    """What decides which of the files may be deleted."""

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
        done = self.marked or LastVacuum(self.first_retained, self.before_ms, self.keep_versions)
        kept = {KEPT: list(done.kept)} if done.kept else {}
        spared = {SPARED: True} if self.marked else {}
        return {MARK: done.before_ms, RETAINED: done.retained, **kept, **spared}

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
    others: Iterable[str] = (),
    databases: Iterable[str] = (),
    find: FindStrays = find_strays,
    meter: Meter | None = None,
) -> VacuumPlan:
    """Find what can be deleted; nothing is.

    `others` are location keys of other tables and `databases` files with a catalog, which may lie
    below the table's location. `find` lists what is there.
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
    search = FileSearch(snapshot, plan.before_ms, keep_versions)
    plan.first_retained = search.first_retained
    for name, size in (*search.tombstones(), *search.change_data()):
        # Most of what another table kept a vacuum from was deleted then.
        if not search.last_vacuum.spared or storage.exists(name):
            plan.sizes.setdefault(name, size)
    announced = search.announced()
    plan.deletable = Deletable(
        storage,
        partition_columns=partition_names(snapshot),
        engine_folders=[name for _, _, name, _ in announced if name.endswith("/")],
        others=others,
        databases=databases,
    )
    for txn_id, path, name, at_ms in announced:
        if at_ms <= min(plan.before_ms, now - INTENT_GRACE_MS):
            # An engine may announce a folder of its own and all that comes into it.
            inside = storage.list(name) if name.endswith("/") else ()
            found = {each.name: each.size for each in inside} or {name.rstrip("/"): 0}
            plan.intents[txn_id, path] = frozenset(found) - plan.sizes.keys()
            plan.sizes = {**found, **plan.sizes}
    if full:
        before_ms = now - wanted // _MILLISECOND
        told = meter or Meter()
        strays = list(search.strays(storage, before_ms, find, told))
        # What was announced while the folder was listed is no stray, however old it looks.
        known = frozenset(name for _, _, name, _ in (*announced, *search.announced()))
        folders = tuple(name for name in known if name.endswith("/"))
        for name, size in strays:
            if name not in known and not name.startswith(folders):
                plan.sizes.setdefault(name, size)
    _spare(plan, search)
    return plan


def spare_needed(plan: VacuumPlan, snapshot: Snapshot) -> None:
    """Take out of the plan what commits brought back since it was made."""
    _spare(plan, FileSearch(snapshot, plan.before_ms, plan.keep_versions))


def _spare(plan: VacuumPlan, search: FileSearch) -> None:
    if not plan.sizes:
        return
    assert plan.deletable is not None
    names = plan.sizes.keys() - search.needed_of(plan.sizes.keys())
    elsewhere = needed_elsewhere(search.snapshot, names, plan.before_ms)
    if elsewhere:  # the next vacuum has to look at them again
        plan.marked = search.last_vacuum
    names -= elsewhere
    allowed = plan.deletable.allowed(name for name in plan.sizes if name in names)
    plan.sizes = {name: plan.sizes[name] for name in allowed}
