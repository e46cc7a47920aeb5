"""Ratify staged commits: one SQL transaction over all tables, tried until the answer is certain.

The heads of all tables are locked in id order, the conflict rules run against what got in
first, and everything is written and committed together. A transaction id is unique in SQL, so
a COMMIT whose answer was lost is looked up under the same locks and never applied twice.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.commit.attempt import Attempt
from deltasql.commit.build import (
    add_group,
    created_meanwhile,
    enable_timestamps,
    insert_table,
    refuse_following,
    refuse_taken,
    table_changed,
    version_taken,
)
from deltasql.commit.conflict import check_conflicts, isolation_for
from deltasql.commit.ratified import Ratified, already_ratified, ratified_append
from deltasql.commit.state import TableState, table_state
from deltasql.commit.validate import validate_against, validate_staged, validate_table
from deltasql.commit.winners import load_winners
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
from deltasql.model.clock import now_ms
from deltasql.phases import reached
from deltasql.store.append import BULK_ROWS, live_name
from deltasql.store.dialect import Fault
from deltasql.store.locations import shared_location, tables_at
from deltasql.store.records import Commit, Head, OneFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.config import Config
    from deltasql.model.actions import CommitInfo
    from deltasql.model.properties import TableProperties
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
# So often a commit waits for the limit of a lock or a statement. With the defaults that is longer
# than the server keeps the transaction of a suspended process.
_TIMEOUTS = 3


class Committer:
    """Commits to one store; remembers what it derived from each table's metadata."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store, self._config = store, config
        self._states: dict[tuple[int, int, int], TableState] = {}
        self._known: dict[int, tuple[int, int, int]] = {}

    def commit(
        self,
        staged: Sequence[Staged],
        txn_id: str,
        *,
        intents: int = 0,
        discard: Callable[[], None] | None = None,
    ) -> list[Ratified]:
        """Ratify all or nothing; returns one entry per staged table, in order.

        `intents` is how many were recorded for this transaction; where some are gone, no vacuum
        may have run since. `discard` is called when the database failed before anything was sent:
        the intents may be lost with it.
        """
        for each in staged:
            validate_staged(each)
        reached("staged")
        backend = self._store.dialect.name
        if telemetry.is_enabled():
            self._store.tell_pool()
        with (
            telemetry.span("commit", tables=len(staged), txn_id=txn_id),
            telemetry.timed("commit_latency_ms", backend=backend),
        ):
            attempt = Attempt(careful=backend == "duckdb", intents=intents)
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
        """Return the level that a table names, else that of the configuration."""
        return table.isolation_level or self._config.table.isolation_level

    def _until_certain(
        self, staged: Sequence[Staged], txn_id: str, attempt: Attempt
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
                # Whatever the limit, an answer that was lost is asked for once.
                if attempt.number >= limit + lost_now or attempt.timeouts >= _TIMEOUTS:
                    raise self._give_up(staged, txn_id, attempt, error) from error
                telemetry.count("commit_retries_total", kind=fault.name.lower())
                telemetry.log(
                    _log, logging.DEBUG, "commit retried", fault=fault.name, attempt=attempt.number
                )
                time.sleep(self._backoff_s(attempt.number))

    def _fault(self, error: BaseException, attempt: Attempt) -> Fault:
        """Name the failure; raise what another attempt cannot mend."""
        if isinstance(error, TxnLogStoreError):
            if attempt.sent:
                return Fault.LOST  # still no connection to ask what became of the COMMIT
            raise error
        fault = self._store.classify(error)
        if fault is Fault.OTHER:
            raise self._store.translate(error) from error
        return fault

    def _once(self, staged: Sequence[Staged], txn_id: str, attempt: Attempt) -> list[Ratified]:
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
                    # Under the lock of a head the answer cannot change.
                    attempt.sent = attempt.is_unknown = False
            timestamp_ms = max([now_ms(), *(head.committed_at_ms + 1 for head in heads.values())])
            # Names are taken in one order by everybody, as heads are locked: none can deadlock.
            built = {
                each.table.table_uuid: self._build(
                    session, each, heads, timestamp_ms, txn_id, len(staged)
                )
                for each in sorted(staged, key=lambda each: each.table.full_name)
            }
            commits = [built[each.table.table_uuid] for each in staged]
            add_group(commits)
            reached("checked")
            # Before the first statement that changes something: what is lost from here on is
            # looked up, and tried again.
            attempt.send()
            # After names and heads are ours: no earlier attempt can have adopted them.
            if attempt.intents and store.adopt_intents(session, txn_id) < attempt.intents:
                refuse_taken(session, staged, heads, txn_id, self._config.storage)
            store.append_commits(session, commits, careful=attempt.careful)
        reached("ratified")
        for commit in commits:
            # A unique index refuses a file that is live already, unless we looked for it.
            commit.replaces_nothing = not (attempt.careful or commit.removes)
        return [Ratified(c.table, c.version, c.committed_at_ms, c) for c in commits]

    def _append_one(
        self, staged: Sequence[Staged], txn_id: str, attempt: Attempt
    ) -> Ratified | None:
        """Take the shortcut for a blind append of one file to a table that we know."""
        only = staged[0]
        if not self._store.has_shortcut:
            return None
        known = self._known.get(only.table.table_id)
        if known is None or len(staged) > 1 or len(only.adds) != 1 or only.cdc:
            return None
        if not only.follows_anything:
            return None
        if only.read_version is not None and only.read_version < max(known[1:]):
            return None  # what was written may not fit the metadata of now
        state = self._states[known]
        try:
            validate_against(only, state)
        except (InvalidActionError, TxnLogTransactionError):
            return None  # the table may have changed since; the long way knows
        one = OneFile(
            table=only.table,
            add=only.adds[0],
            txn_id=txn_id,
            info=self._info(only, state, txn_id),
            now_ms=now_ms(),
            metadata_version=known[1],
            protocol_version=known[2],
            in_commit_timestamps=state.in_commit_timestamps,
            partition_columns=state.partition_columns,
            active_columns=state.active_columns,
            intents=attempt.intents,
        )
        done = self._store.append_one_file(one, attempt.send)
        attempt.sent = False
        if done is None:
            return None
        reached("ratified")
        return ratified_append(one, done)

    def _info(self, staged: Staged, state: TableState, txn_id: str) -> CommitInfo:
        """Complete what the commit tells of itself, but for the time."""
        level = self.isolation_level(state)
        return replace(
            staged.info,
            operation=staged.info.operation or ("CREATE TABLE" if staged.creates else "WRITE"),
            operation_parameters=staged.info.operation_parameters or {},
            read_version=staged.read_version,
            isolation_level=isolation_for(staged, level).value,
            is_blind_append=staged.is_blind_append,
            engine_info=staged.info.engine_info or ENGINE_INFO,
            txn_id=txn_id,
        )

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
            table, head, state = insert_table(session, staged), None, self._created_state(staged)
        else:
            table, head = staged.table, heads.get(staged.table.table_id)
            if head is None or head.live_name != live_name(table.namespace, table.name):
                self._store.forget_table(table)
                raise table_changed(staged, head)
            refuse_following(session, staged)
            state = self._current_state(session, staged, head, timestamp_ms)
        validate_against(staged, state)
        if head is not None and staged.read_version is not None:
            if not 0 <= staged.read_version <= head.version:
                raise VersionNotFoundError(
                    f"{table.full_name} has no version {staged.read_version}",
                    version=staged.read_version,
                    latest=head.version,
                )
            if staged.follows_directly and staged.read_version < head.version:
                raise version_taken(staged, head)
            if _may_conflict(staged, staged.read_version, head):
                winners = load_winners(session, table.table_id, staged.read_version, head)
                level = self.isolation_level(state)
                check_conflicts(staged, winners, isolation_for(staged, level))
        info = replace(
            self._info(staged, state, txn_id),
            timestamp=timestamp_ms,
            in_commit_timestamp=timestamp_ms if state.in_commit_timestamps else None,
        )
        return Commit(
            table=table,
            head=head,
            version=head.version + 1 if head else 0,
            committed_at_ms=timestamp_ms,
            txn_id=txn_id,
            group_size=group_size,
            info=info,
            adds=staged.adds,
            removes=[
                r
                if r.deletion_timestamp is not None
                else replace(r, deletion_timestamp=timestamp_ms)
                for r in staged.removes
            ],
            metadata=state.metadata if staged.metadata is not None else None,
            protocol=staged.protocol,
            txns=staged.txns,
            domains=staged.domains,
            cdc=staged.cdc,
            partition_columns=state.partition_columns,
            skipping=state.skipping,
            active_columns=state.active_columns,
        )

    def _created_state(self, staged: Staged) -> TableState:
        if staged.metadata is None or staged.protocol is None:
            raise TxnLogTransactionError(
                f"{staged.table.full_name} would be created without metadata and protocol",
                table=staged.table.full_name,
            )
        validate_table(staged.metadata, staged.protocol)
        return table_state(staged.metadata, staged.protocol)

    def _current_state(
        self, session: Session, staged: Staged, head: Head, timestamp_ms: int
    ) -> TableState:
        """Return the state after this commit: cached unless it changes metadata or protocol."""
        store, table_id = self._store, head.table_id
        key = (table_id, head.metadata_version, head.protocol_version)
        state = self._states.get(key)
        if state is None:
            state = table_state(
                store.metadata(table_id, head.metadata_version, session),
                store.protocol(table_id, head.protocol_version, session),
                tuple(
                    column
                    for column in store.skipping_columns(table_id, head.metadata_version, session)
                    if column.end_file_id is None
                ),
            )
            self._states[key] = state
        self._known[table_id] = key
        if staged.metadata is None and staged.protocol is None:
            return state
        protocol = staged.protocol or state.protocol
        metadata = staged.metadata or state.metadata
        if staged.metadata is not None:
            metadata = enable_timestamps(metadata, state, head.version + 1, timestamp_ms)
        validate_table(metadata, protocol)
        after = table_state(metadata, protocol, state.active_columns)
        # By the names in the files: to rename a partition column leaves them as they are.
        if after.partition_columns != state.partition_columns:
            self._refuse_mixed_partitions(session, staged, head)
        return after

    def _refuse_mixed_partitions(self, session: Session, staged: Staged, head: Head) -> None:
        """New partition columns ask for new files: none of the old ones may stay."""
        at = {"table_id": head.table_id, "version": head.version}
        if session.query("live_totals", **at)[0][0] != len(staged.removes):
            raise InvalidActionError(
                f"{staged.table.full_name} cannot get other partition columns while it has files",
                help="Remove every live file in the same commit.",
            )

    def _on_duplicate(
        self, staged: Sequence[Staged], attempt: Attempt, error: BaseException
    ) -> None:
        for each in staged:
            if not each.creates:
                continue
            name = each.table.full_name
            found = self._store.find_table(each.table.namespace, each.table.name, fresh=True)
            if found is not None and each.must_be_new:
                raise TableExistsError(f"table {name} already exists", table=name) from error
            if found is not None:
                raise created_meanwhile(self._store.query, name, found) from error
            # Another table got its folder at the same time.
            _refuse_location_taken(self._store, each, error)
        if attempt.careful and attempt.duplicates > 2:
            raise self._store.translate(error) from error
        # A path that is already live was added again: the careful way ends its first life.
        attempt.duplicates += 1
        attempt.careful = True

    def _give_up(
        self, staged: Sequence[Staged], txn_id: str, attempt: Attempt, error: BaseException
    ) -> TxnLogError:
        names = ", ".join(each.table.full_name for each in staged)
        if attempt.is_unknown:  # whatever came after it
            return CommitOutcomeUnknownError(
                f"the database went away during COMMIT, {attempt.number} attempts to ask it failed",
                table=names,
                txn_id=txn_id,
            )
        fault = self._store.classify(error)
        if fault is Fault.BUSY:
            return self._store.translate(error)
        return RetriesExhaustedError(
            f"the commit did not get through: {fault.value}",
            table=names,
            txn_id=txn_id,
            attempts=attempt.number,
        )

    def _backoff_s(self, attempt: int) -> float:
        retry = self._config.retry
        ceiling = min(retry.max_backoff_ms, retry.initial_backoff_ms * 2 ** (attempt - 1))
        return float(ceiling * (1 - retry.jitter * random.random()) / 1000)


ENGINE_INFO = "deltasql"


def _refuse_location_taken(store: Store, staged: Staged, error: BaseException) -> None:
    for other in tables_at(store.query, staged.table.location):
        if other.table_uuid != staged.table.table_uuid:
            raise shared_location(other, staged.table.location) from error


def _may_conflict(staged: Staged, read_version: int, head: Head) -> bool:
    """Whether the commits since then must be looked at: most are appends upon appends."""
    if staged.follows_anything and read_version >= max(
        head.metadata_version, head.protocol_version
    ):
        return False
    return read_version < head.version
