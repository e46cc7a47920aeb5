"""Bring a published log back to what SQL says; what was there is kept aside, never lost.

What is missing or damaged, and what is only derived (checkpoints, checksums, the hint to the last
one), is written again without asking: no reader can use a commit file that is empty, cut off or
not JSON. A commit file with other content is somebody's commit: it gives way only when that is
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.checkpoint.checksum import write_checksum
from deltasql.mirror.checkpoint.write import write_checkpoint
from deltasql.mirror.log.encode import commit_bytes, commit_file
from deltasql.mirror.log.last_checkpoint import last_checkpoint_version
from deltasql.mirror.log.listing import LAST_CHECKPOINT, LOG_FOLDER, find_log, hint_fault
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, targets_of
from deltasql.mirror.verify.quarantine import Aside
from deltasql.mirror.verify.verify import VerifyReport, missing_versions, verify_table
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.phases import reached

if TYPE_CHECKING:
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.publish.targets import PublishTarget
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


_NOUNS = ("commit", "commit", "checkpoint", "checksum", "file")
_DONE = ("published", "replaced", "written", "written", "kept aside")
_TO_DO = ("to publish", "to replace", "to write", "to write", "to keep aside")
# A commit of somebody else, and a file that is nobody's commit.
_OTHERS = ("diverged", "foreign-version")
_DAMAGED = ("damaged", "unreadable")
_NEEDS_FORCE = (
    "  the log has commits that are not SQL's: `deltasql mirror adopt` takes in those past SQL's "
    "head, `deltasql mirror repair --force` (force=True) replaces them and keeps them aside"
)


@dataclass(slots=True)
class RepairReport:
    """What was written again, what was kept aside, and how the log compares now."""

    table: str
    location: str
    published: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    released: bool = False
    dry_run: bool = False
    """Nothing was changed: the versions are those that would be written."""
    after: VerifyReport | None = None

    @property
    def ok(self) -> bool:
        """Whether the log says what SQL says now."""
        return self.after is not None and self.after.ok

    @property
    def needs_force(self) -> bool:
        """Whether the log has commits that are not SQL's, which only `force` replaces."""
        found = None if self.after is None else self.after.found
        return found is not None and bool(found.versions("json", *_OTHERS))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "table": self.table,
            "location": self.location,
            "ok": self.ok,
            "needs_force": self.needs_force,
            "published": list(self.published),
            "replaced": list(self.replaced),
            "checkpoints": list(self.checkpoints),
            "checksums": list(self.checksums),
            "aside": list(self.aside),
            "released": self.released,
            "dry_run": self.dry_run,
            "after": None if self.after is None else self.after.to_dict(),
        }

    def summary(self) -> str:
        """Return the report as text."""
        fates = _TO_DO if self.dry_run else _DONE
        versions = (self.published, self.replaced, self.checkpoints, self.checksums)
        counts = [*map(len, versions), len(self.aside)]
        told = [
            f"{many(count, noun)} {fate}"
            for count, noun, fate in zip(counts, _NOUNS, fates, strict=True)
            if count
        ]
        nothing = "nothing to repair" if self.ok else "nothing was repaired"
        lines = [f"{self.table}: {', '.join(told) or nothing}"]
        if self.dry_run:
            lines.append("  nothing was changed")
        if self.released:
            lines.append("  the mirror is open again")
        if self.after is not None:
            lines += [f"  {line}" for line in self.after.summary().splitlines()]
        if self.needs_force:
            lines.append(_NEEDS_FORCE)
        return "\n".join(lines)


def repair(
    store: Store,
    table: TableRow,
    storage: Storage,
    *,
    force: bool = False,
    target: str = OWN,
    meter: Meter | None = None,
) -> RepairReport:
    """Write again what a log lacks; with `force` also in the place of other commits' files."""
    work = _Repair(store, table, storage, target, meter or Meter())
    work.replace_damaged()
    if force:
        work.shut()
        work.replace_commits()
    end = work.end(force=force)
    work.publish_missing()
    listing = find_log(storage)
    if listing is not None:
        work.write_checkpoints(listing, end)
        work.write_checksums(listing, end)
    return work.finish()


def plan_repair(
    store: Store,
    table: TableRow,
    storage: Storage,
    *,
    force: bool = False,
    target: str = OWN,
    meter: Meter | None = None,
) -> RepairReport:
    """Say what a repair would write; nothing is changed, and nobody's mirror is shut."""
    work = _Repair(store, table, storage, target, meter or Meter())
    found, end = work.before.found, work.end(force=force)
    report = RepairReport(table.full_name, storage.location, dry_run=True, after=work.before)
    report.published = sorted(found.versions("json", "missing-version"))
    chosen = (*_DAMAGED, "diverged") if force else _DAMAGED
    high = work.before.sql_version
    report.replaced = sorted(each for each in found.versions("json", *chosen) if each <= high)
    beyond = {each for each in found.versions("json", "damaged") if each > high}
    if force:
        beyond |= found.versions("json", "foreign-version")
    kept = beyond | found.versions("json", "unreadable", *chosen[2:])
    report.aside = [commit_file(each) for each in sorted(kept)]
    report.checkpoints = sorted(each for each in found.versions("checkpoint") if each < end)
    report.checksums = sorted(each for each in found.versions("crc") if each < end)
    return report


def set_aside_from(storage: Storage, listing: LogListing, version: int, aside: Aside) -> list[int]:
    """Take every file of the log from a version on out of it; returns the commits among them."""
    commits = [each for each in listing.commits if each >= version]
    checkpoints = [
        file.name for each in listing.checkpoints if each.version >= version for file in each.files
    ]
    if checkpoints:
        aside.copy(LAST_CHECKPOINT)
        storage.delete(LAST_CHECKPOINT)
    # What still shows a version whose commit is gone goes first.
    aside.move(checkpoints)
    aside.move(each.file.name for each in listing.compactions if each.last >= version)
    aside.move(file.name for each, file in listing.checksums.items() if each >= version)
    aside.move(listing.commits[each].name for each in commits)
    return commits


class _Repair:
    """One table's repair: what was wrong before, what is done."""

    def __init__(
        self, store: Store, table: TableRow, storage: Storage, target: str, meter: Meter
    ) -> None:
        self._store, self._table, self._storage, self._target = store, table, storage, target
        self._meter = meter
        self._aside = Aside(storage)
        self._report = RepairReport(table.full_name, storage.location)
        self.before = self._verify()

    def _verify(self) -> VerifyReport:
        return verify_table(
            self._store,
            self._table,
            self._storage,
            with_deltalake=False,
            target=self._target,
            meter=self._meter,
        )

    def end(self, *, force: bool) -> int:
        """Return the version before which what is derived from commits is ours to write.

        Where a commit is not SQL's, and stays, what follows from it is not ours either.
        """
        others = () if force else self.before.found.versions("json", "diverged")
        return min(others, default=self.before.sql_version + 1)

    def shut(self) -> None:
        """Let nobody publish meanwhile: what is beyond SQL's head is looked for and taken away."""
        own = self._own_target()
        if own is None:
            return
        if not own.is_quarantined:
            being_repaired = TxnLogMirrorError(
                f"the log of {self._table.full_name} is being repaired",
                help="Repeat the repair if it was interrupted.",
            )
            status.quarantine(self._store, own, own.published_version + 1, being_repaired)
        self.before = self._verify()

    def replace_damaged(self) -> None:
        """Write commit files again that are empty, cut off or not JSON."""
        found, high = self.before.found, self.before.sql_version
        versions = sorted(found.versions("json", *_DAMAGED))
        for version in self._meter.over("replacing", "commits", versions, len(versions)):
            name = commit_file(version)
            if version > high:  # an empty file: SQL has nothing to put there
                self._aside.move([name])
                continue
            if version in found.versions("json", "unreadable"):
                self._aside.copy(name)
            self._replace(version)

    def replace_commits(self) -> None:
        """Put SQL's commits in the place of others, and take away what is beyond SQL's head."""
        listing = find_log(self._storage)
        if listing is None:
            return
        set_aside_from(self._storage, listing, self.before.sql_version + 1, self._aside)
        others = sorted(self.before.found.versions("json", "diverged"))
        for version in self._meter.over("replacing", "commits", others, len(others)):
            self._aside.copy(commit_file(version))
            self._replace(version)

    def publish_missing(self) -> None:
        """Publish the versions that were in the log; one that is cleaned up stays away."""
        low, _ = self._store.query("version_bounds", table_id=self._table.table_id)[0]
        own = self._own_target()
        published = -1 if own is None else own.published_version
        listing = find_log(self._storage)
        missing = missing_versions(listing, low, published)
        if listing is not None and self._were_cleaned(missing, listing):
            # The checkpoint that stood in for them is gone: another one does, from here on.
            self._write_checkpoint(min(each for each in listing.commits if each >= low))
            missing = missing_versions(find_log(self._storage), low, published)
        for version in self._meter.over("publishing", "commits", missing, len(missing)):
            data = self._commit(version)
            if self._storage.put_if_absent(commit_file(version), data, flush_folder=False):
                self._report.published.append(version)
            reached("published")
        if missing:
            self._storage.flush_folder(LOG_FOLDER)

    def write_checkpoints(self, listing: LogListing, end: int) -> None:
        """Write wrong checkpoints again, and the hint to the last one."""
        wrong = self.before.found.versions("checkpoint")
        for checkpoint in listing.checkpoints:
            if checkpoint.version not in wrong or checkpoint.version >= end:
                continue
            for file in checkpoint.files:
                self._aside.copy(file.name)
            self._write_checkpoint(checkpoint.version)
            if checkpoint.kind != "classic":
                self._storage.delete_many(file.name for file in checkpoint.files)
        versions = [each.version for each in listing.checkpoints if each.version < end]
        present = find_log(self._storage) or listing
        latest = max(versions, default=None)
        if last_checkpoint_version(self._storage) == latest and not hint_fault(
            self._storage, present
        ):
            return
        self._aside.copy(LAST_CHECKPOINT)
        self._storage.delete(LAST_CHECKPOINT)
        if versions:
            self._write_checkpoint(max(versions))

    def write_checksums(self, listing: LogListing, end: int) -> None:
        """Write wrong checksums again, and those that are missing between others."""
        kept = listing.checksums
        wrong = {each for each in self.before.found.versions("crc") if each in listing.commits}
        first = min(kept, default=end)
        missing = {each for each in listing.commits if each >= first} - kept.keys()
        versions = sorted(each for each in wrong | missing if each < end)
        # A checksum counts on from the one before: none of the wrong ones may be left.
        self._storage.delete_many(kept[each].name for each in versions if each in kept)
        for version in self._meter.over("writing checksums", "files", versions, len(versions)):
            write_checksum(self._store, self._table, self._storage, version)
        self._report.checksums = versions

    def finish(self) -> RepairReport:
        """Look at the log again; a mirror that was shut opens when all is well."""
        report = self._report
        report.aside = self._aside.names
        report.after = self._verify()
        own = self._own_target()
        if report.after.ok and own is not None and own.is_quarantined:
            status.release(self._store, self._table, self._target)
            report.released = True
        return report

    def _replace(self, version: int) -> None:
        self._storage.put(commit_file(version), self._commit(version))
        reached("published")
        self._report.replaced.append(version)

    def _commit(self, version: int) -> bytes:
        with self._store.session() as session:
            return commit_bytes(session, self._table.table_id, version)

    def _write_checkpoint(self, version: int) -> None:
        write_checkpoint(self._store, self._table, self._storage, version)
        if version not in self._report.checkpoints:
            self._report.checkpoints.append(version)

    def _own_target(self) -> PublishTarget | None:
        found = targets_of(self._store, self._table)
        return next((each for each in found if each.name == self._target), None)

    def _were_cleaned(self, missing: list[int], listing: LogListing) -> bool:
        """Whether the first versions are gone because they are older than the log is kept."""
        if not missing or missing[0] >= min(listing.commits, default=0):
            return False
        table_id = self._table.table_id
        at = {"first": missing[0], "last": missing[0], "limit": 1}
        rows = self._store.query("history", table_id=table_id, **at)
        head = self._store.head(table_id)
        assert head is not None
        metadata = self._store.metadata(table_id, head.metadata_version)
        kept_ms = TableProperties(metadata.configuration).log_retention.total_seconds() * 1000
        return bool(rows) and rows[0][1] < now_ms() - kept_ms
