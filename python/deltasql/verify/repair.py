"""Repair a published log so that it matches the database; replaced files are backed up.

Missing and damaged commit files, and files derived from commits (checkpoints, checksums and
`_last_checkpoint`), are always written again, because no reader can use a commit file that is
empty, truncated or not JSON. A commit file with other content is a commit of another program; it is
replaced only with `force`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.checkpoint.checksum import write_checksum
from deltasql.mirror.checkpoint.write import write_checkpoint
from deltasql.mirror.log.backup import LogBackup
from deltasql.mirror.log.encode import commit_bytes, commit_file, version_row
from deltasql.mirror.log.last_checkpoint import hint_fault, last_checkpoint_version
from deltasql.mirror.log.listing import LAST_CHECKPOINT, LOG_FOLDER, find_log
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, targets_of
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.model.report import Report
from deltasql.phases import reached
from deltasql.verify.verify_log import missing_versions, verify_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.publish.targets import PublishTarget
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store
    from deltasql.verify.report import VerifyReport


_NOUNS = ("commit", "commit", "checkpoint", "checksum", "file")
_DONE = ("published", "replaced", "written", "written", "backed up")
_TO_DO = ("to publish", "to replace", "to write", "to write", "to back up")
# Kinds of differences: commits of another program, and damaged commit files.
_FOREIGN = ("diverged", "foreign-version")
_DAMAGED = ("damaged", "unreadable")
_NEEDS_FORCE = (
    "  the log has commits of another program: `deltasql mirror adopt` imports those after the "
    "latest version of the database, `deltasql mirror repair --force` (force=True) moves "
    "them to _delta_log/_aside and replaces them"
)


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """The files that a repair wrote and backed up, and the verification after it."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("table", "location", "ok", "needs_force", "published", "replaced", "checkpoints"),
        *("checksums", "backups", "released", "dry_run", "after"),
    )
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"aside": "backups"}

    table: str
    location: str
    published: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)
    released: bool = False
    dry_run: bool = False
    """Whether this is a dry run: nothing was changed, and the lists say what a repair would do."""
    after: VerifyReport | None = None

    @property
    def ok(self) -> bool:
        """Whether the log matches the database after the repair."""
        return self.after is not None and self.after.ok

    @property
    def needs_force(self) -> bool:
        """Whether the log has commits of another program, which only `force` replaces."""
        found = None if self.after is None else self.after.found
        return found is not None and bool(found.versions("json", *_FOREIGN))

    def summary(self) -> str:
        """Return the report as a string."""
        actions = _TO_DO if self.dry_run else _DONE
        versions = (self.published, self.replaced, self.checkpoints, self.checksums)
        counts = [*map(len, versions), len(self.backups)]
        changes = [
            f"{many(count, noun)} {action}"
            for count, noun, action in zip(counts, _NOUNS, actions, strict=True)
            if count
        ]
        done = "would be" if self.dry_run else "was"
        nothing = "nothing to repair" if self.ok else f"nothing {done} repaired"
        lines = [f"{self.table}: {', '.join(changes) or nothing}"]
        if self.dry_run:
            lines.append("  nothing was changed")
        if self.released:
            lines.append("  publishing has resumed")
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
    """Repair the log of a table; with `force`, also replace commits of other programs."""
    work = _Repair(store, table, storage, target, meter or Meter())
    work.replace_damaged()
    if force:
        work.quarantine()
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
    """Return what a repair would do, without changing anything."""
    work = _Repair(store, table, storage, target, meter or Meter())
    found, end = work.before.found, work.end(force=force)
    chosen = (*_DAMAGED, "diverged") if force else _DAMAGED
    high = work.before.sql_version
    after_head = {each for each in found.versions("json", "damaged") if each > high}
    if force:
        after_head |= found.versions("json", "foreign-version")
    backed_up = after_head | found.versions("json", "unreadable", *chosen[2:])
    return RepairReport(
        table.full_name,
        storage.location,
        published=sorted(found.versions("json", "missing-version")),
        replaced=sorted(each for each in found.versions("json", *chosen) if each <= high),
        checkpoints=sorted(each for each in found.versions("checkpoint") if each < end),
        checksums=sorted(each for each in found.versions("crc") if each < end),
        backups=[commit_file(each) for each in sorted(backed_up)],
        dry_run=True,
        after=work.before,
    )


class _Repair:
    """The repair of one log; `before` is its verification before the repair."""

    def __init__(
        self, store: Store, table: TableRow, storage: Storage, target: str, meter: Meter
    ) -> None:
        self._store, self._table, self._storage, self._target = store, table, storage, target
        self._meter = meter
        self._backup = LogBackup(storage)
        self._published: list[int] = []
        self._replaced: list[int] = []
        self._checkpoints: list[int] = []
        self._checksums: list[int] = []
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
        """Return the version before which checkpoints and checksums may be written.

        Without `force`, foreign commits stay, and files from the first of them on belong to the
        other program.
        """
        foreign = () if force else self.before.found.versions("json", "diverged")
        return min(foreign, default=self.before.sql_version + 1)

    def quarantine(self) -> None:
        """Stop publishing during the repair, because it removes versions after the head."""
        target = self._current_target()
        if target is None:
            return
        if not target.is_quarantined:
            being_repaired = TxnLogMirrorError(
                f"the log of {self._table.full_name} is being repaired",
                help="Repeat the repair if it was interrupted.",
            )
            status.quarantine(self._store, target, target.published_version + 1, being_repaired)
        self.before = self._verify()

    def replace_damaged(self) -> None:
        """Replace commit files that are empty, truncated or not JSON."""
        found, high = self.before.found, self.before.sql_version
        versions = sorted(found.versions("json", *_DAMAGED))
        for version in self._meter.over("replacing", "commits", versions, len(versions)):
            name = commit_file(version)
            if version > high:  # an empty file of a version that is not in the database
                self._backup.move([name])
                continue
            if version in found.versions("json", "unreadable"):
                self._backup.copy(name)
            self._replace(version)

    def replace_commits(self) -> None:
        """Replace foreign commits with those in the database; remove versions after the head."""
        listing = find_log(self._storage)
        if listing is None:
            return
        self._backup.move_versions(listing, self.before.sql_version + 1)
        foreign = sorted(self.before.found.versions("json", "diverged"))
        for version in self._meter.over("replacing", "commits", foreign, len(foreign)):
            self._backup.copy(commit_file(version))
            self._replace(version)

    def publish_missing(self) -> None:
        """Publish versions that are missing from the log, except those that log cleanup deleted."""
        low, _ = self._store.query("version_bounds", table_id=self._table.table_id)[0]
        target = self._current_target()
        published = -1 if target is None else target.published_version
        listing = find_log(self._storage)
        if listing is None and low > 0 and published >= low:
            self._write_checkpoint(low)  # nothing else has the versions before it
        missing = missing_versions(listing, low, published)
        if listing is not None and self._were_cleaned(missing, listing):
            # The checkpoint that replaced these versions is gone, so write a new one.
            self._write_checkpoint(min(each for each in listing.commits if each >= low))
            missing = missing_versions(find_log(self._storage), low, published)
        for version in self._meter.over("publishing", "commits", missing, len(missing)):
            data = self._commit(version)
            if self._storage.put_if_absent(commit_file(version), data, flush_folder=False):
                self._published.append(version)
            reached("published")
        if missing:
            self._storage.flush_folder(LOG_FOLDER)

    def write_checkpoints(self, listing: LogListing, end: int) -> None:
        """Rewrite wrong checkpoints and a wrong `_last_checkpoint`."""
        wrong = self.before.found.versions("checkpoint")
        for checkpoint in listing.checkpoints:
            if checkpoint.version not in wrong or checkpoint.version >= end:
                continue
            for file in checkpoint.files:
                self._backup.copy(file.name)
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
        self._backup.copy(LAST_CHECKPOINT)
        self._storage.delete(LAST_CHECKPOINT)
        if versions:
            self._write_checkpoint(max(versions))

    def write_checksums(self, listing: LogListing, end: int) -> None:
        """Rewrite wrong checksums, and write missing ones after the first checksum."""
        kept = listing.checksums
        wrong = {each for each in self.before.found.versions("crc") if each in listing.commits}
        first = min(kept, default=end)
        missing = {each for each in listing.commits if each >= first} - kept.keys()
        versions = sorted(each for each in wrong | missing if each < end)
        # A checksum is computed from the previous one, so delete all wrong ones first.
        self._storage.delete_many(kept[each].name for each in versions if each in kept)
        for version in self._meter.over("writing checksums", "files", versions, len(versions)):
            write_checksum(self._store, self._table, self._storage, version)
        self._checksums = versions

    def finish(self) -> RepairReport:
        """Verify the log again, and end the quarantine of the target if it matches the database."""
        after, target = self._verify(), self._current_target()
        is_released = after.ok and target is not None and target.is_quarantined
        if is_released:
            status.release(self._store, self._table, self._target)
        return RepairReport(
            self._table.full_name,
            self._storage.location,
            published=self._published,
            replaced=self._replaced,
            checkpoints=self._checkpoints,
            checksums=self._checksums,
            backups=self._backup.names,
            released=is_released,
            after=after,
        )

    def _replace(self, version: int) -> None:
        self._storage.put(commit_file(version), self._commit(version))
        reached("published")
        self._replaced.append(version)

    def _commit(self, version: int) -> bytes:
        with self._store.session() as session:
            return commit_bytes(session, self._table.table_id, version)

    def _write_checkpoint(self, version: int) -> None:
        write_checkpoint(self._store, self._table, self._storage, version)
        if version not in self._checkpoints:
            self._checkpoints.append(version)

    def _current_target(self) -> PublishTarget | None:
        found = targets_of(self._store, self._table)
        return next((each for each in found if each.name == self._target), None)

    def _were_cleaned(self, missing: list[int], listing: LogListing) -> bool:
        """Return whether log cleanup deleted the first versions, which are past the retention."""
        if not missing or missing[0] >= min(listing.commits, default=0):
            return False
        table_id = self._table.table_id
        row = version_row(self._store, table_id, missing[0])
        head = self._store.head(table_id)
        assert head is not None
        metadata = self._store.metadata(table_id, head.metadata_version)
        retention_ms = TableProperties(metadata.configuration).log_retention.total_seconds() * 1000
        return row is not None and row.committed_at_ms < now_ms() - retention_ms
