"""Cutover: move the authority of a table from its log to the database.

Before a cutover the log decides which commits exist, so the cutover itself is a commit in the log.
This commit enables in-commit timestamps, which block most other writers. Its file is written with
put-if-absent while the table's head is locked in the database. In the same transaction, the
database ratifies the commit and becomes the authority.

If another writer commits first, that commit is appended to the database, and the cutover is tried
again. If a run crashes, the next run finds its commit by the transaction id and finishes the
cutover.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql._core import parse_commit
from deltasql.commit.conflict import ENGINE_INFO
from deltasql.commit.table_state import enable_timestamps, table_state
from deltasql.exceptions import (
    ImportMismatchError,
    MirrorDivergedError,
    RetriesExhaustedError,
    TxnLogTableNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.authority.follow import refresh
from deltasql.migrate.authority.foreign_commits import first_foreign, reject
from deltasql.migrate.authority.handover import (
    CUTOVER,
    ENABLED,
    HandoverReport,
    differences_from_log,
    enabled_by,
    is_published,
    properties_of,
    set_properties,
    try_commit,
    unblocked_writers_warning,
)
from deltasql.migrate.authority.log_owner import find_owner, other_owner
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import set_published_version
from deltasql.migrate.importing.run import ImportOptions
from deltasql.mirror.log.encode import commit_file, encode_commit
from deltasql.mirror.log.listing import flush_log, list_log
from deltasql.mirror.log.read import LogCommit
from deltasql.model.actions import CommitInfo
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.protocol import FENCE, upgraded_protocol, with_features
from deltasql.model.schema.schema import StructType
from deltasql.phases import reached
from deltasql.storage import FileInfo, open_storage
from deltasql.store.records import Commit, TableRow
from deltasql.uri import join_table_name
from deltasql.verify.large_tables import verify_by_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.commit.table_state import TableState
    from deltasql.config import StorageSettings
    from deltasql.migrate.authority.fence import FenceReport
    from deltasql.model.progress import OnProgress, Progress
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head
    from deltasql.store.store import Store
    from deltasql.verify.report import VerifyReport


_ATTEMPTS = 20
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverReport(HandoverReport):
    """The result of a cutover, which makes the database the authority of a table.

    `version` is the commit that blocks writers that bypass the catalog. `caught_up` is the number
    of commits of the log that the database lacked. `fence` is the result of fencing the table.
    """

    KEYS: ClassVar[tuple[str, ...]] = (*HandoverReport.KEYS, "caught_up", "attempts", "fence")

    state: Literal["cut over", "was cut over", "would cut over"] = "cut over"
    caught_up: int = 0
    attempts: int = 0
    fence: FenceReport | None = None

    @property
    def ok(self) -> bool:
        """Whether the database and the log agree."""
        return self.verification is None or not differences_from_log(self.verification)

    def _lines(self) -> list[str]:
        rest = "to append" if self.state == "would cut over" else "appended"
        lines = [f"{self.state}, {many(self.caught_up, 'commit')} of the log {rest}"]
        if self.version is not None:
            lines.append(f"version {self.version} enables in-commit timestamps")
        if self.fence is not None:
            lines.append(self.fence.line())
        return lines


def cutover(
    store: Store,
    table: TableRow,
    *,
    publish: Callable[[], object],
    settings: StorageSettings,
    verify: bool = True,
    fence: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> CutoverReport:
    """Make the database the authority of a table.

    `publish` writes the versions that the table's log lacks, or raises an error. With `fence`, the
    commit that enables in-commit timestamps also fences the table. If the log already has in-commit
    timestamps, a cutover does not write this commit, and the caller has to fence the table.
    """
    work = _Cutover(store, table, publish, settings, on_progress, fences=fence)
    return work.preview(verify=verify) if dry_run else work.run(verify=verify)


class _Conflict(Exception):
    """Another writer committed before the cutover did."""


class _Cutover:
    """The cutover of one table."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        publish: Callable[[], object],
        settings: StorageSettings,
        on_progress: OnProgress | None,
        *,
        fences: bool,
    ) -> None:
        self._store, self._table, self._publish = store, table, publish
        self._fences = fences
        self._settings, self._on_progress = settings, on_progress
        self._storage = open_storage(table.location, settings)
        name = join_table_name(table.namespace, table.name)
        self._report = CutoverReport(table=name, location=self._storage.location)

    def preview(self, *, verify: bool) -> CutoverReport:
        """Report what a cutover would do, without changing anything."""
        head, state = self._head()
        self._check_owner(state)
        caught_up = max(0, list_log(self._storage).last_version - head.version)
        is_done = state.in_commit_timestamps and not self._table.is_following
        adds_commit = not state.in_commit_timestamps
        return replace(
            self._report,
            state="was cut over" if is_done else "would cut over",
            version=head.version + caught_up + 1 if adds_commit else None,
            caught_up=caught_up,
            verification=self._verify() if verify else None,
            warnings=[] if is_done else self._warnings(),
        )

    def run(self, *, verify: bool) -> CutoverReport:
        while True:
            self._report = replace(self._report, attempts=self._report.attempts + 1)
            try:
                self._catch_up()
                head, state = self._head()
                self._check_owner(state)
                if verify and self._report.verification is None:
                    # Verify only once. Verifying a large table takes so long that other writers
                    # commit in the meantime, so repeating it might never end.
                    self._check_matches_log()
                flush_log(self._storage)
                self._take_over(head, state)
            except (_Conflict, VersionTakenError):
                self._pause()
                continue
            self._store.forget_table(self._table)
            if self._report.state == "cut over":
                self._report.warnings.extend(self._warnings())
            return self._report

    def _warnings(self) -> list[str]:
        return [unblocked_writers_warning(self._store, self._table, is_fenced=self._fences)]

    # Step 1: bring the database and the log to the same commits

    def _catch_up(self) -> None:
        """Append new commits of the log to the database, and publish unpublished commits."""
        store, table = self._store, self._current()
        if table.is_following:
            found = refresh(store, table, settings=self._settings, on_progress=self._report_import)
            self._report = replace(self._report, caught_up=self._report.caught_up + found.commits)
            self._report.notes.extend(found.notes)
            self._current()  # the refresh may have loaded the table again, with a new id
            return
        self._clear_unfinished()
        options = ImportOptions(verify=False)
        caught = import_table(
            store, table.location, options, settings=self._settings, on_progress=self._report_import
        )
        self._report = replace(self._report, caught_up=self._report.caught_up + caught.commits)
        try:
            self._publish()
        except MirrorDivergedError as error:
            # Another writer committed first. The next attempt imports its commit, or raises an
            # error if that is impossible.
            raise _Conflict from error

    def _report_import(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(replace(progress, table=self._report.table, phase="catching up"))

    def _current(self) -> TableRow:
        known = self._table
        found = self._store.find_table(known.namespace, known.name, fresh=True)
        if found is None:
            raise TxnLogTableNotFoundError(
                f"table {known.full_name} no longer exists", table=known.full_name
            )
        self._table = found
        return found

    def _clear_unfinished(self) -> None:
        """Remove a crashed cutover's commit from the log if the database has committed since.

        This is safe, because that commit changes no data and is the last one in the log.
        """
        token = self._table.properties.get(CUTOVER)
        if token is None:
            return
        store, listing = self._store, list_log(self._storage)
        first = first_foreign(store, self._table, self._storage, listing)
        head = store.head(self._table.table_id)
        if first is None or head is None or first > head.version or first < listing.last_version:
            return
        data = self._storage.read(listing.commits[first].name)
        info = parse_commit(data, version=first).commit_info
        if info is not None and info.txn_id == token:
            found = reject(store, self._table, self._storage, last=first)
            self._report.notes.extend(f"moved out of the log: {name}" for name in found.backups)

    def _head(self) -> tuple[Head, TableState]:
        store, table_id = self._store, self._table.table_id
        head = store.head(table_id)
        assert head is not None
        state = table_state(
            store.metadata(table_id, head.metadata_version),
            store.protocol(table_id, head.protocol_version),
        )
        return head, state

    def _check_owner(self, state: TableState) -> None:
        """Raise if another catalog owns the log."""
        if not (self._table.is_following and state.in_commit_timestamps):
            return
        owner = find_owner(self._storage, list_log(self._storage))
        token = self._table.properties.get(CUTOVER)
        if owner is not None and (token is None or owner.txn_id != token):
            name = join_table_name(self._table.namespace, self._table.name)
            raise other_owner(self._storage.location, owner.version, owner.txn_id, name)

    def _verify(self) -> VerifyReport:
        log = list_log(self._storage)
        meter = Meter(self._report.table, self._on_progress)
        return verify_by_size(
            self._store, self._table, self._storage, log, self._settings, meter=meter
        )

    def _check_matches_log(self) -> None:
        found = self._verify()
        self._report = replace(self._report, verification=found)
        wrong = differences_from_log(found)
        if wrong:
            raise ImportMismatchError(
                f"{self._table.full_name} was not cut over: it differs from its log",
                location=self._storage.location,
                differences=tuple(str(each) for each in wrong),
            )

    # Step 2: the database becomes the authority

    def _take_over(self, head: Head, state: TableState) -> None:
        store, table_id = self._store, self._table.table_id
        if state.in_commit_timestamps:
            self._finish_at(head, state)
            return
        commit = self._commit(head, state)
        data = encode_commit(commit)
        name = commit_file(commit.version)
        written = LogCommit(
            commit.version,
            FileInfo(name, len(data), commit.committed_at_ms),
            data,
            parse_commit(data, version=commit.version, path=name),
        )

        def put(session: Session, _: int) -> None:
            if not is_published(store, session, self._table, self._storage, head.version):
                raise _Conflict
            reached("handing over")
            if not try_commit(self._storage, commit.version, data):
                raise _Conflict
            reached("handed over")
            set_published_version(session, table_id, commit.version)
            self._make_sql_authority(session)

        loader = LogLoader(store, self._table)
        if loader.next_version != commit.version:
            raise _Conflict
        loader.append([written], before_commit=put)
        reached("taken over")
        self._report = replace(self._report, version=commit.version)

    def _finish_at(self, head: Head, state: TableState) -> None:
        """Finish the cutover of a table whose log already has in-commit timestamps."""
        table = self._table
        with self._store.change([table.table_id], is_bulk=True) as (session, heads):
            if heads[table.table_id].version != head.version:
                raise _Conflict
            if table.is_following and self._storage.exists(commit_file(head.version + 1)):
                raise _Conflict
            self._make_sql_authority(session)
        reached("taken over")
        row = enabled_by(self._store, table, state.metadata)
        if row is not None and row.txn_id == table.properties.get(CUTOVER):
            self._report = replace(self._report, version=row.version)
        elif not table.is_following:
            self._report = replace(self._report, state="was cut over")

    def _commit(self, head: Head, state: TableState) -> Commit:
        """Build the commit that enables in-commit timestamps and changes nothing else."""
        at_ms = max(now_ms(), head.committed_at_ms + 1)
        wanted = {ENABLED: "true"}
        metadata = replace(state.metadata, configuration={**state.metadata.configuration, **wanted})
        schema = StructType.from_json(metadata.schema_string)
        protocol = upgraded_protocol(state.protocol, schema, metadata.configuration)
        txn_id = self._claim()
        info = CommitInfo(
            timestamp=at_ms,
            in_commit_timestamp=at_ms,
            operation="SET TBLPROPERTIES",
            # This must be a string, because delta-spark cannot show the history of a log with
            # another type.
            operation_parameters={"properties": json.dumps(wanted)},
            engine_info=ENGINE_INFO,
            is_blind_append=False,
            read_version=head.version,
            txn_id=txn_id,
            extra={"cutover": self._table.table_uuid},
        )
        return Commit(
            table=self._table,
            head=head,
            version=head.version + 1,
            committed_at_ms=at_ms,
            txn_id=txn_id,
            group_size=1,
            info=info,
            metadata=enable_timestamps(metadata, state, head.version + 1, at_ms),
            protocol=with_features(protocol, [FENCE]) if self._fences else protocol,
        )

    def _claim(self) -> str:
        """Return the id for the commit.

        The id is stored before the commit is written, so that a retry finds the commit.
        """
        with self._store.change([self._table.table_id]) as (session, _):
            properties = properties_of(session, self._table)
            token = properties.setdefault(CUTOVER, str(uuid.uuid4()))
            set_properties(session, self._table, properties)
        self._table = replace(self._table, properties=properties)
        reached("claimed")
        return token

    def _make_sql_authority(self, session: Session) -> None:
        kept = properties_of(session, self._table)
        kept.pop(TableRow.FOLLOWING, None)
        kept.pop(CUTOVER, None)
        set_properties(session, self._table, kept)

    def _pause(self) -> None:
        if self._report.attempts >= _ATTEMPTS:
            raise RetriesExhaustedError(
                f"{self._table.full_name} was not cut over: another writer committed in every "
                "attempt",
                table=self._table.full_name,
                attempts=self._report.attempts,
                help="Nothing is lost. Try again when fewer writers commit to the table.",
            )
        time.sleep(_PAUSE_S)
