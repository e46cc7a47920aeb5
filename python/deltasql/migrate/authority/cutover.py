"""Cutover: SQL takes a table over from its log.

Up to here the log decides what is committed, so the step itself is a commit of the log: it turns
in-commit timestamps on, which writers by path do not know, and is put there if absent, under the
lock of the table's head in SQL. SQL ratifies the same commit in the transaction that makes the
table its own. A writer by path that gets in before is caught up with, and the step is tried again;
a run that died in between is found by the id of its commit, and finished.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql._core import parse_commit
from deltasql.commit.committer import ENGINE_INFO
from deltasql.commit.table_state import enable_timestamps, table_state
from deltasql.exceptions import (
    ImportMismatchError,
    MirrorDivergedError,
    RetriesExhaustedError,
    TxnLogTableNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.authority.authority import (
    CUTOVER,
    ENABLED,
    enabled_by,
    is_in_place,
    not_kept_out,
    properties_of,
    put_commit,
    serious,
    set_properties,
)
from deltasql.migrate.authority.follow import mark_in_place, refresh
from deltasql.migrate.authority.foreign_commits import first_foreign, reject
from deltasql.migrate.authority.handover_report import CutoverReport
from deltasql.migrate.authority.other_authority import authority_of, other_authority
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.run import ImportOptions
from deltasql.migrate.importing.verify import verify_by_size
from deltasql.mirror.log.encode import commit_file, encode_commit
from deltasql.mirror.log.listing import flush_log, list_log
from deltasql.mirror.log.read import LogCommit
from deltasql.model.actions import CommitInfo
from deltasql.model.clock import now_ms
from deltasql.model.progress import Meter, Progress
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema.schema import StructType
from deltasql.phases import reached
from deltasql.storage import FileInfo, open_storage
from deltasql.store.records import Commit, TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.commit.table_state import TableState
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.report import ImportProgress
    from deltasql.mirror.verify.verify import VerifyReport
    from deltasql.model.progress import OnProgress
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head
    from deltasql.store.store import Store


_ATTEMPTS = 20
_PAUSE_S = 0.05


def cutover(
    store: Store,
    table: TableRow,
    *,
    publish: Callable[[], object],
    settings: StorageSettings,
    verify: bool = True,
    dry_run: bool = False,
    tell: OnProgress | None = None,
) -> CutoverReport:
    """Make SQL the authority of a table; `publish` writes what its log lacks, or raises."""
    work = _Cutover(store, table, publish, settings, tell)
    if dry_run:
        return work.look(verify=verify)
    return work.run(verify=verify)


class _Taken(Exception):
    """Somebody committed while we were about to."""


class _Cutover:
    """One table on its way from its log to SQL."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        publish: Callable[[], object],
        settings: StorageSettings,
        tell: OnProgress | None,
    ) -> None:
        self._store, self._table, self._publish = store, table, publish
        self._settings, self._tell = settings, tell
        self._storage = open_storage(table.location, settings)
        name = join_table_name(table.namespace, table.name)
        self._report = CutoverReport(table=name, location=self._storage.location)

    def look(self, *, verify: bool) -> CutoverReport:
        """Say what would be done."""
        report, (head, state) = self._report, self._head()
        report.state = "would cut over"
        self._refuse_other_authority(state)
        report.caught_up = max(0, list_log(self._storage).last_version - head.version)
        if not state.in_commit_timestamps:
            report.version = head.version + report.caught_up + 1
        elif not self._table.is_following:
            report.state = "was cut over"
        if verify:
            report.verification = self._verify()
        if report.state == "would cut over":
            report.warnings.append(not_kept_out(self._store, self._table))
        return report

    def run(self, *, verify: bool) -> CutoverReport:
        report = self._report
        while True:
            report.attempts += 1
            try:
                self._catch_up()
                head, state = self._head()
                self._refuse_other_authority(state)
                if verify and report.verification is None:
                    # Once: on a large table writers would be faster than this, again and again.
                    self._refuse_mismatch()
                flush_log(self._storage)
                self._take_over(head, state)
            except (_Taken, VersionTakenError):
                self._pause()
                continue
            self._store.forget_table(self._table)
            if report.state == "cut over":
                report.warnings.append(not_kept_out(self._store, self._table))
            return report

    # Up to the log

    def _catch_up(self) -> None:
        """Bring SQL up to the log, and the log up to SQL."""
        store, table = self._store, self._current()
        if table.is_following:
            found = refresh(store, table, settings=self._settings, tell=self._caught_up)
            self._report.caught_up += found.commits
            self._report.notes += found.notes
            self._current()  # it may have been loaded anew
            return
        self._clear_unfinished()
        options = ImportOptions(verify=False)
        caught = import_table(
            store, table.location, options, settings=self._settings, tell=self._caught_up
        )
        self._report.caught_up += caught.commits
        try:
            self._publish()
        except MirrorDivergedError as error:
            # Somebody was faster: the next look names it, if it cannot be mended.
            raise _Taken from error

    def _caught_up(self, found: ImportProgress) -> None:
        if self._tell is not None:
            counts = (found.commits, found.total_commits, found.seconds)
            self._tell(Progress(self._report.table, "catching up", "commits", *counts))

    def _current(self) -> TableRow:
        known = self._table
        found = self._store.find_table(known.namespace, known.name, fresh=True)
        if found is None:
            raise TxnLogTableNotFoundError(
                f"table {known.full_name} does not exist any more", table=known.full_name
            )
        self._table = found
        return found

    def _clear_unfinished(self) -> None:
        """Take the commit of a run that died out of the log again, where SQL went on meanwhile.

        It changes no data, and nobody has built upon it.
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
            self._report.notes += [f"kept aside: {name}" for name in found.aside]

    def _head(self) -> tuple[Head, TableState]:
        store, table_id = self._store, self._table.table_id
        head = store.head(table_id)
        assert head is not None
        state = table_state(
            store.metadata(table_id, head.metadata_version),
            store.protocol(table_id, head.protocol_version),
        )
        return head, state

    def _refuse_other_authority(self, state: TableState) -> None:
        """A log that another catalog took over is not ours to take."""
        if not (self._table.is_following and state.in_commit_timestamps):
            return
        found = authority_of(self._storage, list_log(self._storage))
        token = self._table.properties.get(CUTOVER)
        if found is not None and (token is None or found.txn_id != token):
            name = join_table_name(self._table.namespace, self._table.name)
            raise other_authority(self._storage.location, found.version, found.txn_id, name)

    def _verify(self) -> VerifyReport:
        log = list_log(self._storage)
        meter = Meter(self._report.table, self._tell)
        return verify_by_size(
            self._store, self._table, self._storage, log, self._settings, meter=meter
        )

    def _refuse_mismatch(self) -> None:
        report = self._report
        report.verification = found = self._verify()
        wrong = serious(found)
        if wrong:
            raise ImportMismatchError(
                f"{self._table.full_name} was not cut over: it differs from its log",
                location=self._storage.location,
                differences=tuple(str(each) for each in wrong),
            )

    # Over to SQL

    def _take_over(self, head: Head, state: TableState) -> None:
        store, table_id = self._store, self._table.table_id
        if state.in_commit_timestamps:
            self._own_at(head, state)
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

        def put(session: Session) -> None:
            if not is_in_place(store, session, self._table, self._storage, head.version):
                raise _Taken
            reached("handing over")
            if not put_commit(self._storage, commit.version, data):
                raise _Taken
            reached("handed over")
            mark_in_place(session, table_id, commit.version)
            self._own(session)

        loader = LogLoader(store, self._table)
        if loader.next_version != commit.version:
            raise _Taken
        loader.append([written], also=put)
        reached("taken over")
        self._report.version = commit.version

    def _own_at(self, head: Head, state: TableState) -> None:
        """Take over a table whose log keeps writers out already, by our own commit or another."""
        table = self._table
        with self._store.change([table.table_id], is_bulk=True) as (session, heads):
            if heads[table.table_id].version != head.version:
                raise _Taken
            if table.is_following and self._storage.exists(commit_file(head.version + 1)):
                raise _Taken
            self._own(session)
        reached("taken over")
        row = enabled_by(self._store, table, state.metadata)
        is_ours = row is not None and row.txn_id == table.properties.get(CUTOVER)
        if row is not None and is_ours:
            self._report.version = row.version
        elif not table.is_following:
            self._report.state = "was cut over"

    def _commit(self, head: Head, state: TableState) -> Commit:
        """Build the commit that turns in-commit timestamps on and changes nothing else."""
        moment = max(now_ms(), head.committed_at_ms + 1)
        wanted = {ENABLED: "true"}
        metadata = replace(state.metadata, configuration={**state.metadata.configuration, **wanted})
        schema = StructType.from_json(metadata.schema_string)
        txn_id = self._claim()
        info = CommitInfo(
            timestamp=moment,
            in_commit_timestamp=moment,
            operation="SET TBLPROPERTIES",
            # As text: delta-spark cannot show the history of a log with any other value.
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
            committed_at_ms=moment,
            txn_id=txn_id,
            group_size=1,
            info=info,
            metadata=enable_timestamps(metadata, state, head.version + 1, moment),
            protocol=upgraded_protocol(state.protocol, schema, metadata.configuration),
        )

    def _claim(self) -> str:
        """Return the id of our commit, noted before it is in the log: a later run knows it."""
        with self._store.change([self._table.table_id]) as (session, _):
            properties = properties_of(session, self._table)
            token = properties.setdefault(CUTOVER, str(uuid.uuid4()))
            set_properties(session, self._table, properties)
        self._table = replace(self._table, properties=properties)
        reached("claimed")
        return token

    def _own(self, session: Session) -> None:
        kept = properties_of(session, self._table)
        kept.pop(TableRow.FOLLOWING, None)
        kept.pop(CUTOVER, None)
        set_properties(session, self._table, kept)

    def _pause(self) -> None:
        if self._report.attempts >= _ATTEMPTS:
            raise RetriesExhaustedError(
                f"{self._table.full_name} was not cut over: others committed each time",
                table=self._table.full_name,
                attempts=self._report.attempts,
                help="Nothing is lost; repeat it when fewer write to the table.",
            )
        time.sleep(_PAUSE_S)
