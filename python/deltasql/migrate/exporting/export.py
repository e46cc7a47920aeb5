"""Export a range of versions as a separate Delta table, with or without its data files.

Readers can open the destination as a table once it has the commit of version 0, or the checkpoint
of a later first version. The export writes this commit or checkpoint after the data files and the
other commits. So an export that is interrupted before leaves files, but no readable table. A file
at the destination describes the export, so that the next run can continue it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from deltasql import _core
from deltasql.config import StorageSettings
from deltasql.exceptions import (
    LogParseError,
    TxnLogStorageError,
)
from deltasql.migrate.authority.log_owner import COPY_FILE
from deltasql.migrate.exporting.destination import (
    UNFINISHED_FILE,
    choose_span,
    continues,
    find_unfinished,
    not_empty,
    reject_location_in_use,
)
from deltasql.migrate.exporting.relocate import RelocatedSource, relocated
from deltasql.mirror.checkpoint.checksum import checksum_after, checksum_at, checksum_file
from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.mirror.checkpoint.write import write_checkpoint_of
from deltasql.mirror.log.encode import actions_span, commit_file
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.mirror.log.same_commit import is_id_of
from deltasql.model.actions import CommitInfo, Protocol
from deltasql.model.counts import many, size_text
from deltasql.model.progress import Meter
from deltasql.model.report import Report
from deltasql.operations.alter.fence import unfenced
from deltasql.operations.clone.copy_files import DataCopier
from deltasql.operations.clone.paths import CopiedData, ReferencedData
from deltasql.storage import open_storage, parse_location
from deltasql.store.records import Head, VersionRow
from deltasql.verify.sql_state import SqlState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.migrate.exporting.destination import ExportSpan
    from deltasql.mirror.checkpoint.checksum import Checksum
    from deltasql.model.actions import Action
    from deltasql.model.progress import OnProgress
    from deltasql.operations.clone.paths import Relocation
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ExportReport(Report):
    """The result of an export."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"gone": "missing_files"}

    table: str
    location: str
    directory: str
    first_version: int
    last_version: int
    with_data: bool
    commits: int = 0
    files: int = 0
    bytes: int = 0
    checkpoints: list[int] = field(default_factory=list)
    continued: bool = False
    missing_files: list[str] = field(default_factory=list)
    """Missing data files of older versions; the versions that need them cannot be read."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the report as text."""
        span = f"versions {self.first_version} to {self.last_version}"
        if self.first_version == self.last_version:
            span = f"version {self.last_version}"
        what = many(self.commits, "commit")
        if self.with_data:
            what += f", {many(self.files, 'file')} of {size_text(self.bytes)}"
        lines = [f"{self.table}: {span} exported to {self.directory} ({what})"]
        if not self.with_data:
            lines.append(f"  the data stays at {self.location}")
        if self.continued:
            lines.append("  an interrupted export was continued")
        if self.missing_files:
            count = many(len(self.missing_files), "file")
            lines.append(
                f"  missing: {count} of older versions, which cannot be read, neither in the copy "
                "nor in the table itself"
            )
            lines += [f"    {path}" for path in self.missing_files[:_MAX_SHOWN]]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def export_table(
    store: Store,
    table: TableRow,
    directory: str,
    *,
    settings: StorageSettings | None = None,
    checkpoint_interval: int = 10,
    version: int | None = None,
    from_version: int | None = None,
    with_data: bool = False,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write the versions from_version..version of a table as a Delta table to an empty location.

    The default is all versions in the database. Without its data, the exported table refers to the
    data files of the table by URL. With its data, it does not depend on the table.
    """
    chosen = settings or StorageSettings()
    target = open_storage(directory, chosen)
    reject_location_in_use(store, table, target)
    wanted = choose_span(store, table, version, from_version, with_data=with_data)
    unfinished = find_unfinished(target)
    if unfinished is None:
        target.put(UNFINISHED_FILE, wanted.to_json())
    elif not continues(unfinished, wanted, version, from_version):
        raise not_empty(target, UNFINISHED_FILE)
    span = unfinished or wanted
    export = _Export(store, table, target, chosen, span, on_progress)
    return export.run(checkpoint_interval, continued=unfinished is not None)


class _Export:
    """One export."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        target: Storage,
        settings: StorageSettings,
        span: ExportSpan,
        on_progress: OnProgress | None,
    ) -> None:
        self._store, self._table, self._target, self._settings = store, table, target, settings
        self._span, self._start = span, time.monotonic()
        self._meter = Meter(table.full_name, on_progress)
        self._copied = CopiedData(table.location) if span.with_data else None
        self._relocation: Relocation = self._copied or ReferencedData(table.location)
        self._checksums = [_unfenced(checksum_at(store, table, span.first))]
        self._commits_written = 0
        self._checkpoints: list[int] = []
        self._notes: list[str] = []

    def run(self, checkpoint_interval: int, *, continued: bool) -> ExportReport:
        span = self._span
        files = size = 0
        missing: list[str] = []
        if self._copied is None:
            self._write_commits(None)
        else:
            with DataCopier(
                self._copied,
                self._target,
                self._settings,
                skips_present=continued,
            ) as copier:
                copier.on_batch = lambda: self._report_progress(copier.files, copier.bytes)
                for files in CheckpointSource(self._store, self._table, span.first).live_files():
                    copier.copy_listed(files)
                self._write_commits(copier)
                files, size = copier.files, copier.bytes
                missing = self._check_missing(copier.missing)
                copier.flush_folders()
        if span.last > span.first:
            self._target.flush_folder(LOG_FOLDER)
        self._write_first()
        for checksum in self._checksums:
            # Write this after the first version, because some readers open a table if it has
            # checksum files.
            self._target.put(
                checksum_file(checksum.version), checksum.to_json(), flush_folder=False
            )
        if span.last - span.first >= checkpoint_interval:
            self._checkpoint(span.last)
        self._target.flush_folder(LOG_FOLDER)
        self._target.put(COPY_FILE, span.to_json())
        self._target.delete(UNFINISHED_FILE)
        self._commits_written += 1
        self._report_progress(files, size, total_files=files)
        return ExportReport(
            self._table.full_name,
            self._table.location,
            self._target.location,
            span.first,
            span.last,
            span.with_data,
            commits=self._commits_written,
            files=files,
            bytes=size,
            checkpoints=self._checkpoints,
            continued=continued,
            missing_files=missing,
            seconds=time.monotonic() - self._start,
            notes=self._notes,
        )

    # The log

    def _write_commits(self, copier: DataCopier | None) -> None:
        """Write all commits except the first, each after the data files that it adds."""
        for row, actions in self._commits(self._span.first + 1):
            if copier is not None:
                copier.copy_named(actions)
            self._put(row, actions)
            self._commits_written += 1
            files, size = (0, 0) if copier is None else (copier.files, copier.bytes)
            self._report_progress(files, size)
        if copier is not None:
            # Copy the change data files of the first version, if its commit still exists.
            copier.copy_named(self._first[1])

    def _write_first(self) -> None:
        """Write the first version; from here on readers can open the table."""
        self._put(*self._first)
        if self._span.first > 0:
            self._checkpoint(self._span.first)

    def _commits(self, first: int) -> Iterator[tuple[VersionRow, list[Action]]]:
        table_id, version = self._table.table_id, first
        while version <= self._span.last:
            with self._store.session() as session:
                found = actions_span(session, table_id, version, self._span.last)
            last = found[-1][0]
            rows = {row.version: row for row in self._rows(version, last)}
            yield from ((rows[each], actions) for each, actions in found)
            version = last + 1

    @cached_property
    def _first(self) -> tuple[VersionRow, list[Action]]:
        """The row and the actions of the first commit.

        If the version was loaded from a checkpoint, its commit may be unknown. The only action is
        then its commitInfo.
        """
        first = self._span.first
        low = self._store.query("version_bounds", table_id=self._table.table_id)[0][0]
        if first > low or first == 0:
            with self._store.session() as session:
                return self._rows(first, first)[0], actions_span(
                    session, self._table.table_id, first, first
                )[0][1]
        row = self._rows(first, first)[0]
        return row, self._published(row) or [row.info]

    def _published(self, row: VersionRow) -> list[Action] | None:
        """Return the actions of a version from the table's log; None if the log lacks it."""
        source = open_storage(self._table.location, self._settings)
        name = commit_file(row.version)
        try:
            data = source.read(name)
            commit = _core.parse_commit(data, version=row.version, path=name)
        except (FileNotFoundError, LogParseError):
            return None
        info = commit.commit_info or CommitInfo()
        if not is_id_of(row.txn_id, self._table, row.version, data):
            return None
        others = [each for each in commit.actions() if not isinstance(each, CommitInfo)]
        return [replace(info, txn_id=row.info.txn_id), *others]

    def _rows(self, first: int, last: int) -> list[VersionRow]:
        rows = self._store.query(
            "history",
            table_id=self._table.table_id,
            first=first,
            last=last,
            limit=last - first + 1,
        )
        return [VersionRow.from_row(row) for row in rows]

    def _put(self, row: VersionRow, actions: list[Action]) -> None:
        name = commit_file(row.version)
        data = _core.encode_commit([relocated(action, self._relocation) for action in actions])
        self._target.put(name, data, flush_folder=False)
        if row.version > self._span.first:
            checksum = checksum_after(self._store, self._table, self._checksums[-1], data)
            self._checksums.append(checksum)
        destination = parse_location(self._target.location)
        if destination.is_local:
            # For a commit without an in-commit timestamp, the modification time of its file is its
            # timestamp.
            os.utime(f"{destination.path}/{name}", ns=(row.committed_at_ms * 1_000_000,) * 2)
        elif row.info.in_commit_timestamp is None and not self._notes:
            self._notes.append(
                "the table has no in-commit timestamps: in the copy the timestamp of a version is "
                "the time of the export"
            )

    def _checkpoint(self, version: int) -> None:
        source = RelocatedSource(self._store, self._table, version, self._relocation)
        write_checkpoint_of(source, self._table, self._target)
        self._checkpoints.append(version)

    # The data

    def _check_missing(self, missing: set[str]) -> list[str]:
        """Return the missing files of older versions; raise if the last version lacks files."""
        if not missing:
            return []
        live = set(SqlState(self._store, self._table, self._span.last).files["path"].to_pylist())
        lost = sorted(missing & live)
        if lost:
            more = f" and {len(lost) - _MAX_SHOWN} more" if len(lost) > _MAX_SHOWN else ""
            raise TxnLogStorageError(
                f"{many(len(lost), 'file')} of version {self._span.last} of "
                f"{self._table.full_name} cannot be found: {', '.join(lost[:_MAX_SHOWN])}{more}",
                location=self._table.location,
                operation="export",
                help="Restore the files and run the export again: it then continues. Otherwise "
                "repair the table, or export without data.",
            )
        return sorted(missing - live)

    # Progress

    def _report_progress(self, files: int, size: int, total_files: int | None = None) -> None:
        """Report the copied files or, without data, the written commits."""
        if self._copied is None:
            total = self._span.last - self._span.first + 1
            self._meter.report("exporting", "commits", self._commits_written, total)
            return
        # A file that was removed and added again is copied once, but the estimate counts it twice.
        total = self._total_files if total_files is None else total_files
        self._meter.report("exporting", "files", files, total, files=files, size_bytes=size)

    @cached_property
    def _total_files(self) -> int:
        if self._copied is None:
            return 0
        at = {"table_id": self._table.table_id}
        first, last = (
            Head(*self._store.query("head_at_version", version=version, **at)[0])
            for version in (self._span.first, self._span.last)
        )
        live = self._store.query("count_live_files", version=self._span.first, **at)[0][0]
        return int(live) + last.next_file_id - first.next_file_id


def _unfenced(checksum: Checksum) -> Checksum:
    """Return a checksum whose protocol has no fence, like the protocol of the exported log."""
    protocol = unfenced(Protocol.from_body(checksum.facts.protocol)).body()
    return replace(checksum, facts=replace(checksum.facts, protocol=protocol))
