"""Export: a span of a table's versions as a Delta table of its own, with its data or without.

The piece without which no reader opens the copy is written last: the commit of version 0, or the
checkpoint of the first version of a later span. Whatever ends an export before that leaves files
but no table; a note at the destination lets the next run go on from there.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.config import StorageSettings
from deltasql.exceptions import (
    LogParseError,
    TableExistsError,
    TxnLogStorageError,
    VersionNotFoundError,
)
from deltasql.migrate.authority.other_authority import COPY
from deltasql.migrate.exporting.copy_data import DataCopier
from deltasql.migrate.exporting.relocate import ComeAlong, RelocatedSource, StayBehind, relocated
from deltasql.migrate.exporting.report import ExportProgress, ExportReport
from deltasql.migrate.importing.load_log import is_id_of
from deltasql.mirror.checkpoint.checksum import checksum_file, totals_after, totals_at
from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.mirror.checkpoint.write import write_checkpoint_of
from deltasql.mirror.log.encode import actions_span, commit_file
from deltasql.mirror.log.listing import LOG_FOLDER, find_log
from deltasql.mirror.verify.sql_state import SqlState
from deltasql.model.actions import CommitInfo
from deltasql.model.counts import many
from deltasql.model.json_text import load_json
from deltasql.storage import open_storage, parse_location
from deltasql.storage.location import location_key
from deltasql.store.locations import refuse_nested_location, shared_location, tables_at
from deltasql.store.records import Head, VersionRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.migrate.exporting.relocate import Relocation
    from deltasql.model.actions import Action
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

NOTE = "_deltasql_export.json"
"""Lies at the destination while an export is under way: what it is, so that it can go on."""
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Span:
    """What is exported: the versions first..last, with their data or without."""

    table_uuid: str
    location: str
    first: int
    last: int
    with_data: bool

    def to_json(self) -> bytes:
        """Return the note that lies at the destination meanwhile."""
        body = {
            "table": self.table_uuid,
            "location": self.location,
            "firstVersion": self.first,
            "lastVersion": self.last,
            "withData": self.with_data,
        }
        return json.dumps(body).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Span | None:
        """Read a note; None when it is none of ours."""
        try:
            body = load_json(data)
            return cls(
                body["table"],
                body["location"],
                body["firstVersion"],
                body["lastVersion"],
                body["withData"],
            )
        except (ValueError, KeyError, TypeError):
            return None


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
    on_progress: Callable[[ExportProgress], None] | None = None,
) -> ExportReport:
    """Write the versions from_version..version of a table as a Delta table at an empty place.

    By default all that SQL has. Without its data the copy names the files of the table by their
    URLs; with it, nothing of the copy depends on the table any more.
    """
    chosen = settings or StorageSettings()
    target = open_storage(directory, chosen)
    _refuse_own(table, target)
    for other in tables_at(store.query, target.location):
        raise shared_location(other, target.location)
    refuse_nested_location(store.query, target.location)
    wanted = _span(store, table, version, from_version, with_data=with_data)
    begun = _begun(target)
    if begun is None:
        target.put(NOTE, wanted.to_json())
    elif not _continues(begun, wanted, version, from_version):
        raise _not_empty(target, NOTE)
    export = _Export(store, table, target, chosen, begun or wanted, on_progress or (lambda _: None))
    export.report.continued = begun is not None
    return export.run(checkpoint_interval)


class _Export:
    """One export on its way."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        target: Storage,
        settings: StorageSettings,
        span: Span,
        tell: Callable[[ExportProgress], None],
    ) -> None:
        self._store, self._table, self._target, self._settings = store, table, target, settings
        self._span, self._tell, self._start = span, tell, time.monotonic()
        self._along = ComeAlong(table.location) if span.with_data else None
        self._move: Relocation = self._along or StayBehind(table.location)
        self._totals = [totals_at(store, table, span.first)]
        self.report = ExportReport(
            table.full_name,
            table.location,
            target.location,
            span.first,
            span.last,
            span.with_data,
        )

    def run(self, checkpoint_interval: int) -> ExportReport:
        span, report = self._span, self.report
        if self._along is None:
            self._write_commits(None)
        else:
            with DataCopier(
                self._along,
                self._target,
                self._settings,
                skips_present=report.continued,
            ) as copier:
                copier.on_batch = lambda: self._told(copier)
                for files in CheckpointSource(self._store, self._table, span.first).live_files():
                    copier.copy_listed(files)
                self._write_commits(copier)
                report.files, report.bytes = copier.files, copier.bytes
                report.gone = self._refuse_missing(copier.missing)
                copier.flush_folders()
        if span.last > span.first:
            self._target.flush_folder(LOG_FOLDER)
        self._write_first()
        for totals in self._totals:
            # Not earlier: some readers open a table by its checksums.
            self._target.put(checksum_file(totals.version), totals.to_json(), flush_folder=False)
        if span.last - span.first >= checkpoint_interval:
            self._checkpoint(span.last)
        self._target.flush_folder(LOG_FOLDER)
        self._target.put(COPY, span.to_json())
        self._target.delete(NOTE)
        report.commits = span.last - span.first + 1
        report.seconds = time.monotonic() - self._start
        self._tell(self._progress(report.files, report.bytes, report.files))
        return report

    # The log

    def _write_commits(self, copier: DataCopier | None) -> None:
        """Write all commits but the first, with the data that they bring before each."""
        for row, actions in self._commits(self._span.first + 1):
            if copier is not None:
                copier.copy_named(actions)
            self._put(row, actions)
            self.report.commits += 1
            self._told(copier)
        if copier is not None:
            # What the first version changed can be read too, where the log still tells it.
            copier.copy_named(self._first[1])

    def _write_first(self) -> None:
        """Write what makes a table of the files: from here on readers can open it."""
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
        """The commit of the first version; of one that sums up others what is known of it."""
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
        """Return the commit from which the table was loaded, if the table's log still has it."""
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
        told = [each for each in commit.actions() if not isinstance(each, CommitInfo)]
        return [replace(info, txn_id=row.info.txn_id), *told]

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
        data = _core.encode_commit([relocated(action, self._move) for action in actions])
        self._target.put(name, data, flush_folder=False)
        if row.version > self._span.first:
            totals = totals_after(self._store, self._table, self._totals[-1], data)
            self._totals.append(totals)
        place = parse_location(self._target.location)
        if place.is_local:
            # Readers tell the time of a commit by its file, unless the commit tells it.
            os.utime(f"{place.path}/{name}", ns=(row.committed_at_ms * 1_000_000,) * 2)
        elif row.info.in_commit_timestamp is None and not self.report.notes:
            self.report.notes.append(
                "commits have no timestamps of their own: there the time of a version is that of "
                "the export"
            )

    def _checkpoint(self, version: int) -> None:
        source = RelocatedSource(self._store, self._table, version, self._move)
        write_checkpoint_of(source, self._table, self._target)
        self.report.checkpoints.append(version)

    # The data

    def _refuse_missing(self, missing: set[str]) -> list[str]:
        """Return the missing files that the last version does without; an error for the others."""
        if not missing:
            return []
        live = set(SqlState(self._store, self._table, self._span.last).files["path"].to_pylist())
        lost = sorted(missing & live)
        if lost:
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            raise TxnLogStorageError(
                f"{many(len(lost), 'file')} of version {self._span.last} of "
                f"{self._table.full_name} cannot be found: {', '.join(lost[:_SHOWN])}{more}",
                location=self._table.location,
                operation="export",
                help="Restore the files and run the export again, which goes on where it was; or "
                "repair the table; or export without data.",
            )
        return sorted(missing - live)

    # How far it is

    def _told(self, copier: DataCopier | None) -> None:
        files, size = (0, 0) if copier is None else (copier.files, copier.bytes)
        self._tell(self._progress(files, size, self._total_files))

    def _progress(self, files: int, size: int, total_files: int) -> ExportProgress:
        return ExportProgress(
            commits=self.report.commits,
            total_commits=self._span.last - self._span.first + 1,
            files=files,
            total_files=total_files,
            bytes=size,
            seconds=time.monotonic() - self._start,
        )

    @cached_property
    def _total_files(self) -> int:
        if self._along is None:
            return 0
        at = {"table_id": self._table.table_id}
        first, last = (
            Head(*self._store.query("head_at_version", version=version, **at)[0])
            for version in (self._span.first, self._span.last)
        )
        live = self._store.query("count_live_files", version=self._span.first, **at)[0][0]
        return int(live) + last.next_file_id - first.next_file_id


# The destination


def _span(
    store: Store,
    table: TableRow,
    version: int | None,
    from_version: int | None,
    *,
    with_data: bool,
) -> Span:
    low, high = store.query("version_bounds", table_id=table.table_id)[0]
    last = high if version is None else version
    first = low if from_version is None else from_version
    for each in (last, first):
        if not low <= each <= high:
            raise VersionNotFoundError(
                f"{table.full_name} has no version {each}; it has {low} to {high}",
                table=table.full_name,
                version=each,
                latest=high,
            )
    if first > last:
        raise VersionNotFoundError(
            f"the first version to export, {first}, comes after the last, {last}",
            table=table.full_name,
            version=first,
            latest=last,
            help="Give from_version and version in the order of the history.",
        )
    return Span(table.table_uuid, table.location, first, last, with_data)


def _continues(begun: Span, wanted: Span, version: int | None, from_version: int | None) -> bool:
    """Whether what was asked for is what a run that was cut short had begun."""
    same = replace(
        wanted,
        last=begun.last if version is None else wanted.last,
        first=begun.first if from_version is None else wanted.first,
    )
    return same == begun


def _begun(target: Storage) -> Span | None:
    """Return what another run had begun here; None at an empty place, an error at any other."""
    try:
        note = Span.from_json(target.read(NOTE))
    except FileNotFoundError:
        note = None
    if note is not None:
        return note
    found = next(iter(target.list()), None)
    if found is None:
        return None
    if find_log(target) is not None:
        raise TableExistsError(
            f"A table already exists at: {target.location}",
            help="Export to an empty place.",
        )
    raise _not_empty(target, found.name)


def _refuse_own(table: TableRow, target: Storage) -> None:
    if location_key(target.location).startswith(location_key(table.location)):
        raise TxnLogStorageError(
            f"{target.location} belongs to {table.full_name} itself",
            location=target.location,
            operation="export",
            help="Export to a place outside of the table.",
        )


def _not_empty(target: Storage, name: str) -> TxnLogStorageError:
    return TxnLogStorageError(
        f"{target.location} is not empty: it holds {name}",
        location=target.location,
        name=name,
        operation="export",
        help="Export to an empty place; an export that was cut short is continued by the same "
        "call, or its files are deleted first.",
    )
