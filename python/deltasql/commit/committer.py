"""Ratify staged commits: one SQL transaction over all tables, retried until the outcome is known.

A commit locks the heads of all its tables in the order of their ids. Under these locks it checks
the conflict rules against the commits that were ratified since the transaction read the tables.
Then it writes the rows of all tables and commits them together.

A transaction id is unique in the database. After a lost acknowledgement, the commit is looked up by
its transaction id under the same locks, so it is never applied twice.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.commit.conflict import ENGINE_INFO, check_conflicts, load_winners
from deltasql.commit.identity import TAGS, with_current_marks
from deltasql.commit.ratified import Ratified, already_ratified
from deltasql.commit.staged import validate_against, validate_staged
from deltasql.commit.stale import (
    created_by_other,
    reject_following,
    reject_location_of_other,
    reject_taken_version,
    reject_used_location,
    reject_vacuumed,
    table_changed,
)
from deltasql.commit.table_state import (
    TableState,
    TableStates,
    state_after,
    table_state,
    validate_table,
)
from deltasql.exceptions import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    InvalidActionError,
    RetriesExhaustedError,
    TableExistsError,
    TxnLogError,
    TxnLogStoreError,
    TxnLogTransactionError,
    VersionNotFoundError,
)
from deltasql.model.clock import LAST_MS, now_ms
from deltasql.model.features import row_tracking
from deltasql.phases import reached
from deltasql.store.append import BULK_ROWS
from deltasql.store.audit import is_audited
from deltasql.store.dialect import Fault
from deltasql.store.leases import reject_held
from deltasql.store.locations import insert_table
from deltasql.store.records import Commit, Head, OneFile, domain_from_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.config import Config
    from deltasql.model.actions import AddFile, CommitInfo, DomainMetadata, Metadata, RemoveFile
    from deltasql.model.properties import TableProperties
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
# A commit fails after this many lock or statement timeouts. With the default settings, the sum of
# these timeouts is longer than the time for which the server keeps the transaction of a suspended
# process open.
_MAX_TIMEOUTS = 3
_MAX_PARTICIPANTS = 100  # the most tables that each commitInfo lists


@dataclass(slots=True)
class _Attempt:
    """The state of one commit, shared by all its attempts."""

    check_duplicates: bool
    """Whether to look up before the insert which added files are already live."""
    intents: int
    number: int = 0
    sent: bool = False
    was_sent: bool = False
    """Whether this attempt or an earlier one sent a change to the database."""
    is_unknown: bool = False
    duplicates: int = 0
    timeouts: int = 0

    def mark_sent(self) -> None:
        """Record that a change is being sent: the database may commit it without us knowing."""
        self.sent = self.was_sent = True
        reached("sending")


class Committer:
    """Ratifies commits in one store."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store, self._config = store, config
        self._states = TableStates(store)

    def commit(
        self,
        staged: Sequence[Staged],
        txn_id: str,
        *,
        intents: int = 0,
        discard: Callable[[], None] | None = None,
    ) -> list[Ratified]:
        """Ratify the changes of all tables or none; return one entry per staged table, in order.

        `intents` is the number of intents recorded for this transaction. If some of them are
        missing and a vacuum ran in the meantime, the commit fails. `discard` deletes the data files
        of the transaction. It is called if the database failed before any change was sent: the
        intents may be lost too, and then no vacuum would find these files.
        """
        for each in staged:
            validate_staged(each)
        reached("staged")
        backend = self._store.dialect.name
        if telemetry.is_enabled():
            self._store.report_pool_usage()
        with (
            telemetry.span("commit", tables=len(staged), txn_id=txn_id),
            telemetry.timed("commit_latency_ms", backend=backend),
        ):
            check_duplicates = not self._store.dialect.has_live_file_index
            attempt = _Attempt(check_duplicates=check_duplicates, intents=intents)
            try:
                ratified = self._until_certain(staged, txn_id, attempt)
            except TxnLogStoreError:
                if discard is not None and not attempt.was_sent:
                    discard()
                raise
            except CommitConflictError as conflict:
                telemetry.count("commit_conflicts_total", kind=type(conflict).__name__)
                raise
        if telemetry.is_enabled():
            for done in ratified:
                telemetry.count("versions_committed_total", table=done.table.full_name)
        if _log.isEnabledFor(logging.INFO):
            for done in ratified:
                fields = {"table": done.table.full_name, "version": done.version, "txn_id": txn_id}
                telemetry.log(_log, logging.INFO, "committed", **fields)
        return ratified

    def isolation_level(self, table: TableState | TableProperties) -> str:
        """Return the isolation level of a table: its table property, or else the configured one."""
        return table.isolation_level or self._config.table.isolation_level

    def _until_certain(
        self, staged: Sequence[Staged], txn_id: str, attempt: _Attempt
    ) -> list[Ratified]:
        limit = self._config.retry.max_attempts
        errors: tuple[type[BaseException], ...] = (*self._store.errors, TxnLogStoreError)
        while True:
            attempt.number += 1
            try:
                return self._once(staged, txn_id, attempt)
            except errors as error:
                fault = self._fault(error, attempt)
                if fault is Fault.DUPLICATE:
                    done = already_ratified(self._store.query, staged, txn_id)
                    if done is not None:
                        return done
                    self._on_duplicate(staged, attempt, error)
                lost_now = fault is Fault.LOST and attempt.sent
                attempt.is_unknown |= lost_now
                attempt.timeouts += fault is Fault.BUSY
                # After a lost acknowledgement, one attempt beyond the limit looks up the outcome.
                if attempt.number >= limit + lost_now or attempt.timeouts >= _MAX_TIMEOUTS:
                    raise self._final_error(staged, txn_id, attempt, error) from error
                telemetry.count("commit_retries_total", kind=fault.name.lower())
                telemetry.log(
                    _log, logging.DEBUG, "commit retried", fault=fault.name, attempt=attempt.number
                )
                time.sleep(self._backoff_s(attempt.number))

    def _fault(self, error: BaseException, attempt: _Attempt) -> Fault:
        """Return the kind of failure; raise the error if another attempt would fail too."""
        if isinstance(error, TxnLogStoreError):
            if attempt.sent:
                return Fault.LOST  # the outcome of the COMMIT could not be looked up yet
            raise error
        fault = self._store.classify(error)
        if fault in (Fault.OTHER, Fault.READ_ONLY):
            raise self._store.translate(error) from error
        return fault

    def _once(self, staged: Sequence[Staged], txn_id: str, attempt: _Attempt) -> list[Ratified]:
        store = self._store
        if attempt.number == 1 and (appended := self._append_one(staged, txn_id, attempt)):
            return [appended]
        ids = [each.table.table_id for each in staged if not each.creates]
        is_bulk = any(max(len(s.adds), len(s.removes)) >= BULK_ROWS for s in staged)
        with store.dialect.write_turn(), store.session() as session:
            heads = store.begin_locked(session, ids, is_bulk=is_bulk)
            reached("locked")
            if attempt.number > 1:
                done = already_ratified(session.query, staged, txn_id)
                if done is not None:
                    return done
                if ids:
                    # The earlier attempt was not ratified. It cannot be ratified any more, because
                    # this attempt now holds the locks on the heads.
                    attempt.sent = attempt.is_unknown = False
            for each in staged:
                if each.yields:
                    reject_held(session, each.table)
            timestamp_ms = max([now_ms(), *(head.committed_at_ms + 1 for head in heads.values())])
            # Every commit inserts the names of new tables in the same order, so that two commits
            # that create tables cannot deadlock.
            built = {
                each.table.table_uuid: self._build(
                    session, each, heads, timestamp_ms, txn_id, len(staged)
                )
                for each in sorted(staged, key=lambda each: each.table.full_name)
            }
            commits = [built[each.table.table_uuid] for each in staged]
            _add_group(commits)
            reached("checked")
            # Call this before the first statement that changes data. If the connection is lost
            # after this point, the outcome is looked up before the next attempt.
            attempt.mark_sent()
            for commit, each in zip(commits, staged, strict=True):
                if each.restarts_identity:
                    session.execute("discard_reserved_numbers", table_id=commit.table.table_id)
            # The heads and the names are locked, so an earlier attempt of this commit cannot have
            # deleted the intents.
            if attempt.intents and store.complete_intents(session, txn_id) < attempt.intents:
                reject_vacuumed(session, staged, heads, txn_id, self._config.storage)
            store.append_commits(session, commits, check_duplicates=attempt.check_duplicates)
        reached("ratified")
        for commit in commits:
            # Without `check_duplicates`, a unique index rejects files that are already live. So a
            # commit that succeeded replaced none.
            commit.replaces_nothing = not (attempt.check_duplicates or commit.removes)
        return [Ratified(c.table, c.version, c.committed_at_ms, c) for c in commits]

    def _append_one(
        self, staged: Sequence[Staged], txn_id: str, attempt: _Attempt
    ) -> Ratified | None:
        """Ratify a blind append of one file on the fast path; return None if it is not possible."""
        only = staged[0]
        if not self._store.has_append_one or is_audited():
            return None
        known = self._states.latest.get(only.table.table_id)
        if known is None or len(staged) > 1 or len(only.adds) != 1 or only.cdc:
            return None
        if not only.is_plain_append:
            return None
        metadata_version, protocol_version, state = known
        if state.assigns_row_ids:
            return None  # the general path reads the highest row id and assigns new ones
        read_version = only.read_version
        if read_version is not None and read_version < max(metadata_version, protocol_version):
            return None  # the file was written for older metadata or an older protocol
        try:
            validate_against(only, state)
        except (InvalidActionError, TxnLogTransactionError):
            return None  # the cached state may be out of date; the general path reads it again
        one = OneFile(
            table=only.table,
            add=only.adds[0],
            txn_id=txn_id,
            info=self._info(only, state, txn_id),
            now_ms=now_ms(),
            metadata_version=metadata_version,
            protocol_version=protocol_version,
            in_commit_timestamps=state.in_commit_timestamps,
            partition_columns=state.partition_columns,
            active_columns=state.active_columns,
            intents=attempt.intents,
        )
        done = self._store.append_one_file(one, attempt.mark_sent)
        attempt.sent = False
        if done is None:
            return None
        reached("ratified")
        return Ratified(one.table, *done, one.ratified(*done))

    def _info(self, staged: Staged, state: TableState, txn_id: str) -> CommitInfo:
        """Return the commitInfo of a commit, without its timestamps unless it is external."""
        if staged.is_external:
            return replace(staged.info, txn_id=txn_id)
        level = self.isolation_level(state)
        return replace(
            staged.info,
            operation=staged.info.operation or ("CREATE TABLE" if staged.creates else "WRITE"),
            operation_parameters=staged.info.operation_parameters or {},
            read_version=staged.read_version,
            isolation_level=staged.isolation(level).value,
            is_blind_append=staged.is_blind_append,
            engine_info=staged.info.engine_info or ENGINE_INFO,
            txn_id=txn_id,
        )

    def _timed_info(
        self, staged: Staged, state: TableState, txn_id: str, timestamp_ms: int
    ) -> CommitInfo:
        info = self._info(staged, state, txn_id)
        if not staged.is_external:
            in_commit = timestamp_ms if state.in_commit_timestamps else None
            return replace(info, timestamp=timestamp_ms, in_commit_timestamp=in_commit)
        if state.in_commit_timestamps and _external_time(staged) is None:
            raise InvalidActionError(
                f"the commit to {staged.table.full_name} has no valid in-commit timestamp, "
                "which the table requires",
                help="Write it with a Delta writer that supports in-commit timestamps.",
            )
        return info

    def _build(
        self,
        session: Session,
        staged: Staged,
        heads: dict[int, Head],
        timestamp_ms: int,
        txn_id: str,
        group_size: int,
    ) -> Commit:
        if staged.creates:
            reject_used_location(session, staged)
            table, head = insert_table(session, staged.table), None
            metadata = with_current_marks(None, staged, None)
            state = _created_state(staged, metadata)
        else:
            table, head = staged.table, heads.get(staged.table.table_id)
            if head is None or head.live_name != table.live_name:
                self._store.forget_table(table)
                raise table_changed(staged, head)
            # A table follows its log from its creation on, or never. So a cached row may still say
            # "following" after a cutover, but never the reverse.
            if table.is_following:
                reject_following(session, staged)
            reject_taken_version(staged, head)
            timestamp_ms = _commit_time(staged, head, timestamp_ms)
            before = self._states.read(session, head)
            metadata = with_current_marks(session, staged, before.metadata)
            state = state_after(
                before,
                metadata,
                staged.protocol,
                version=head.version + 1,
                timestamp_ms=timestamp_ms,
            )
            # Compare physical names: renaming a partition column does not change the files.
            if state.partition_columns != before.partition_columns:
                _reject_mixed_partitions(session, staged, head, before, state)
        validate_against(staged, state)
        if head is not None and staged.read_version is not None:
            if not 0 <= staged.read_version <= head.version:
                raise VersionNotFoundError(
                    f"{table.full_name} has no version {staged.read_version}",
                    version=staged.read_version,
                    latest=head.version,
                )
            if staged.may_conflict(staged.read_version, head):
                winners = load_winners(session, table, staged.read_version, head)
                level = self.isolation_level(state)
                check_conflicts(staged, winners, staged.isolation(level))
        info = self._timed_info(staged, state, txn_id, timestamp_ms)
        if metadata is not None and staged.metadata is None:
            info = replace(info, extra={**info.extra, **TAGS})
        version = head.version + 1 if head else 0
        adds, domains = staged.adds, staged.domains
        if adds and state.assigns_row_ids and not staged.is_external:
            adds, domains = _with_row_ids(session, staged, head, version)
        return Commit(
            table=table,
            head=head,
            version=version,
            committed_at_ms=timestamp_ms,
            txn_id=txn_id,
            group_size=group_size,
            info=info,
            adds=adds,
            removes=_with_deletion_times(staged, timestamp_ms),
            metadata=metadata if metadata is None or staged.is_external else state.metadata,
            protocol=staged.protocol,
            txns=staged.txns,
            domains=domains,
            cdc=staged.cdc,
            partition_columns=state.partition_columns,
            skipping=state.skipping,
            active_columns=state.active_columns,
        )

    def _on_duplicate(
        self, staged: Sequence[Staged], attempt: _Attempt, error: BaseException
    ) -> None:
        for each in staged:
            if not each.creates:
                continue
            name = each.table.full_name
            found = self._store.find_table(each.table.namespace, each.table.name, fresh=True)
            if found is not None and each.must_be_new:
                raise TableExistsError(f"table {name} already exists", table=name) from error
            if found is not None:
                raise created_by_other(self._store.query, name, found) from error
            reject_location_of_other(self._store.query, each, error)
        if attempt.check_duplicates and attempt.duplicates > 2:
            raise self._store.translate(error) from error
        # An added file is already live. The next attempt looks it up and marks its earlier row as
        # removed.
        attempt.duplicates += 1
        attempt.check_duplicates = True

    def _final_error(
        self, staged: Sequence[Staged], txn_id: str, attempt: _Attempt, error: BaseException
    ) -> TxnLogError:
        names = ", ".join(each.table.full_name for each in staged)
        if attempt.is_unknown:  # also if a later attempt failed in another way
            return CommitOutcomeUnknownError(
                "the connection was lost during COMMIT, and the outcome could not be looked up in "
                f"{attempt.number} attempts",
                table=names,
                txn_id=txn_id,
            )
        fault = self._store.classify(error)
        if fault is Fault.BUSY:
            return self._store.translate(error)
        return RetriesExhaustedError(
            f"the commit failed in every attempt: {fault.value}",
            table=names,
            txn_id=txn_id,
            attempts=attempt.number,
        )

    def _backoff_s(self, attempt: int) -> float:
        retry = self._config.retry
        ceiling = min(retry.max_backoff_ms, retry.initial_backoff_ms * 2 ** (attempt - 1))
        return float(ceiling * (1 - retry.jitter * random.random()) / 1000)


def _commit_time(staged: Staged, head: Head, now: int) -> int:
    """Return the time of a commit: the present, or the in-commit timestamp of an external one."""
    own = _external_time(staged)
    return now if own is None else max(own, head.committed_at_ms + 1)


def _external_time(staged: Staged) -> int | None:
    own = staged.info.in_commit_timestamp if staged.is_external else None
    # Timestamps increase, so after a very large one the next commit could not have a larger one.
    return own if isinstance(own, int) and abs(own) <= LAST_MS else None


def _with_row_ids(
    session: Session, staged: Staged, head: Head | None, version: int
) -> tuple[list[AddFile], list[DomainMetadata]]:
    """Return the added files of a commit with row ids, and its metadata domains.

    The head is locked, so no other commit assigns the same ids.
    """
    known = {} if head is None else _domains(session, head)
    known |= {each.domain: each for each in staged.domains}
    present = known.get(row_tracking.DOMAIN)
    if present is not None and present.removed:
        present = None
    adds, domain = row_tracking.with_row_ids(staged.adds, present, version)
    if domain is None:
        return adds, staged.domains
    others = (each for each in staged.domains if each.domain != row_tracking.DOMAIN)
    return adds, [*others, domain]


def _domains(session: Session, head: Head) -> dict[str, DomainMetadata]:
    rows = session.query("domains_at", table_id=head.table_id, version=head.version)
    return {each.domain: each for each in map(domain_from_row, rows)}


def _with_deletion_times(staged: Staged, timestamp_ms: int) -> list[RemoveFile]:
    """Return the removed files of a commit; those without a time get the time of the commit."""
    if staged.is_external:
        return staged.removes
    return [
        each
        if each.deletion_timestamp is not None
        else replace(each, deletion_timestamp=timestamp_ms)
        for each in staged.removes
    ]


def _add_group(commits: list[Commit]) -> None:
    """Record in every commitInfo which tables and versions belong to the same transaction.

    Each table's log lists all tables, so the total size grows with the square of their number. With
    many tables, each log lists only its own table and the number of tables. The id of the
    transaction is the same in all logs.
    """
    if len(commits) < 2:
        return
    participants = [
        # Write the namespace even if it is the default one, because a rebuild reads the name from
        # here.
        {
            "table": f"{c.table.namespace}.{c.table.name}",
            "id": c.table.table_uuid,
            "version": c.version,
        }
        for c in commits
    ]
    for commit, own in zip(commits, participants, strict=True):
        group: dict[str, object] = {"id": commit.txn_id, "participants": participants}
        if len(commits) > _MAX_PARTICIPANTS:
            group |= {"participants": [own], "size": len(commits)}
        commit.info = replace(commit.info, extra={**commit.info.extra, "group": group})


def _created_state(staged: Staged, metadata: Metadata | None) -> TableState:
    if metadata is None or staged.protocol is None:
        raise TxnLogTransactionError(
            f"the commit that creates {staged.table.full_name} has no metadata or no protocol",
            table=staged.table.full_name,
        )
    validate_table(metadata, staged.protocol)
    return table_state(metadata, staged.protocol)


def _reject_mixed_partitions(
    session: Session, staged: Staged, head: Head, before: TableState, state: TableState
) -> None:
    """Reject new partition columns unless the commit removes every file that has the old ones."""
    renamed = state.metadata.partition_columns != before.metadata.partition_columns
    if state.iceberg_compat and renamed:
        raise InvalidActionError(
            f"the partition columns of {staged.table.full_name} cannot change: the table has "
            f"{state.iceberg_compat[0]}",
            help="Write the rows to another table.",
        )
    at = {"table_id": head.table_id, "version": head.version}
    if session.query("live_totals", **at)[0][0] != len(staged.removes):
        raise InvalidActionError(
            f"the partition columns of {staged.table.full_name} cannot change while it has files",
            help="Remove every live file in the same commit.",
        )
