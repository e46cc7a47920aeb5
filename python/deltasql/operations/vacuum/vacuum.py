"""VACUUM: find the files to delete by querying the database, without listing the folder.

A version is retained while the version or its successor is younger than the retention period. Files
that only older versions need are deleted: removed data files with their deletion vectors, and
change data. Files that a transaction wrote long ago and never committed are also deleted. A full
vacuum also lists the folder and deletes files that no version references.
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
from deltasql.operations.vacuum.file_search import (
    VACUUM_KEPT,
    VACUUM_RETAINED,
    VACUUM_SPARED,
    VACUUMED_BEFORE,
    FileSearch,
    LastVacuum,
    needed_elsewhere,
    partition_names,
)
from deltasql.operations.vacuum.unreferenced import find_unreferenced
from deltasql.storage.deletion import Deletable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltasql.operations.vacuum.unreferenced import FindUnreferenced
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage

_MILLISECOND = timedelta(milliseconds=1)
# Intents younger than this are kept even if the retention period is shorter, because their
# transactions may still be writing.
INTENT_GRACE_MS = 3_600_000
# If commits follow each other quickly, their timestamps can be ahead of the clock, but by less
# than this.
_AHEAD = timedelta(minutes=1)


@dataclass(slots=True)
class VacuumPlan:
    """The files that a vacuum deletes, and what its commits record."""

    retention: timedelta
    default_retention: timedelta
    enforced: bool
    before_ms: int
    sizes: dict[str, int] = field(default_factory=dict)
    """Names of files below the table's location, with their sizes; 0 if unknown."""
    intents: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Intents that were never committed, by transaction and path.

    The values are the names of the files that are deleted only because of the intent.
    """
    keep_versions: tuple[int, ...] = ()
    first_retained: int = -1
    marked: LastVacuum | None = None
    """The start that the previous vacuum recorded, if this vacuum must record it again.

    This is the case if this vacuum keeps files that other tables need.
    """
    deletable: Deletable | None = None
    """Decides which of the files may be deleted."""

    @property
    def files(self) -> list[str]:
        return list(self.sizes)

    def parameters(self) -> dict[str, str]:
        """Return the operation parameters of VACUUM START."""
        return {
            "retentionCheckEnabled": str(self.enforced).lower(),
            "specifiedRetentionMillis": str(self.retention // _MILLISECOND),
            "defaultRetentionMillis": str(self.default_retention // _MILLISECOND),
        }

    def kept(self) -> dict[str, Any]:
        """Return the commitInfo entries of VACUUM START."""
        return {VACUUM_KEPT: list(self.keep_versions)} if self.keep_versions else {}

    def protected(self) -> set[int]:
        """Return the versions that must not expire after this vacuum (`protected_versions`)."""
        return {*self.keep_versions, *(self.marked.kept if self.marked else ())}

    def mark(self) -> dict[str, Any]:
        """Return the commitInfo entries of VACUUM END that the next vacuum reads."""
        done = self.marked or LastVacuum(self.first_retained, self.before_ms, self.keep_versions)
        kept = {VACUUM_KEPT: list(done.kept)} if done.kept else {}
        spared = {VACUUM_SPARED: True} if self.marked else {}
        return {VACUUMED_BEFORE: done.before_ms, VACUUM_RETAINED: done.retained, **kept, **spared}

    def keep(self, intents: Iterable[tuple[str, str]]) -> None:
        """Remove these intents, which the vacuum could not take over, and their files."""
        for intent in intents:
            for name in self.intents.pop(intent):
                self.sizes.pop(name, None)

    def metrics(self) -> dict[str, int]:
        """Return the operation metrics of VACUUM START."""
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
    find: FindUnreferenced = find_unreferenced,
    meter: Meter | None = None,
) -> VacuumPlan:
    """Find the files that a vacuum can delete. This function deletes nothing.

    `others` are location keys of other tables, and `databases` are catalog database files; both
    may be below the table's location. `find` lists the folder for a full vacuum.
    """
    default = TableProperties(snapshot.metadata.configuration).deleted_file_retention
    wanted = default if retention is None else retention
    if enforce_retention_duration and wanted < default:
        raise TxnLogError(
            "Invalid retention period, minimum retention for vacuum is configured to be greater "
            f"than {default // timedelta(hours=1)} hours, got {wanted // timedelta(hours=1)} hours",
            prefix=GENERIC_ERROR,
            help="If no reader or writer needs older files, set enforce_retention_duration=False "
            "(`deltasql vacuum --force`).",
        )
    now = now_ms()
    # A commit's timestamp is later than that of the previous commit, so it can be ahead of the
    # clock. Allow only a small difference: a commit from a machine whose clock is wrong must
    # not make all files look old.
    head_ms = min(max(now, snapshot.committed_at_ms), now + _AHEAD // _MILLISECOND)
    plan = VacuumPlan(wanted, default, enforce_retention_duration, head_ms - wanted // _MILLISECOND)
    plan.keep_versions = tuple(keep_versions)
    search = FileSearch(snapshot, plan.before_ms, keep_versions)
    plan.first_retained = search.first_retained
    for name, size in (*search.tombstones(), *search.change_data()):
        # If the last vacuum kept files for other tables, it already deleted most of these files.
        if not search.last_vacuum.spared or storage.exists(name):
            plan.sizes.setdefault(name, size)
    intents = search.intents()
    plan.deletable = Deletable(
        storage,
        partition_columns=partition_names(snapshot),
        engine_folders=[name for _, _, name, _ in intents if name.endswith("/")],
        others=others,
        databases=databases,
    )
    for txn_id, path, name, at_ms in intents:
        if at_ms <= min(plan.before_ms, now - INTENT_GRACE_MS):
            # An intent may be for a folder; it covers all files in the folder.
            inside = storage.list(name) if name.endswith("/") else ()
            found = {each.name: each.size for each in inside} or {name.rstrip("/"): 0}
            plan.intents[txn_id, path] = frozenset(found) - plan.sizes.keys()
            plan.sizes = {**found, **plan.sizes}
    if full:
        before_ms = now - wanted // _MILLISECOND
        unreferenced = list(search.unreferenced(storage, before_ms, find, meter or Meter()))
        # Do not delete files for which there is an intent, even if they look old. Query the intents
        # again, to include those that were recorded during the listing.
        known = frozenset(name for _, _, name, _ in (*intents, *search.intents()))
        folders = tuple(name for name in known if name.endswith("/"))
        for name, size in unreferenced:
            if name not in known and not name.startswith(folders):
                plan.sizes.setdefault(name, size)
    _spare(plan, search)
    return plan


def spare_needed(plan: VacuumPlan, snapshot: Snapshot) -> None:
    """Remove from the plan the files that newer commits have restored."""
    _spare(plan, FileSearch(snapshot, plan.before_ms, plan.keep_versions))


def _spare(plan: VacuumPlan, search: FileSearch) -> None:
    if not plan.sizes:
        return
    assert plan.deletable is not None
    names = plan.sizes.keys() - search.needed_of(plan.sizes.keys())
    elsewhere = needed_elsewhere(search.snapshot, names, plan.before_ms)
    if elsewhere:  # the next vacuum has to check them again
        plan.marked = search.last_vacuum
    names -= elsewhere
    allowed = plan.deletable.allowed(name for name in plan.sizes if name in names)
    plan.sizes = {name: plan.sizes[name] for name in allowed}
