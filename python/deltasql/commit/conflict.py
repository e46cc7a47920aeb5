"""Delta's conflict rules: can our commit be applied after the commits that were ratified first?

A commit that was ratified after the version we read is called a winner. Each rule compares one
aspect of our commit with one winner, and raises an error that names the table, both versions and
the winner. If every rule passes, our commit keeps its actions and gets the next version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.commit.identity import changes_only_marks, overlapping
from deltasql.commit.staged import Isolation
from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentDomainMetadataError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
)
from deltasql.store.records import VersionRow, add_from_row, metadata_from_row, remove_from_row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.model.actions import AddFile, Metadata, RemoveFile
    from deltasql.store.dialect import Row, Session
    from deltasql.store.records import Head, TableRow

ENGINE_INFO = "deltasql"
"""The engine in the commitInfo of deltasql's own commits."""
# These are deltalake's messages for the same conflicts, because existing code matches these
# phrases.
_FAILED = "Failed to commit transaction"
_DELETED = f"{_FAILED}: Commit failed: a concurrent transaction deleted data this operation read"


@dataclass(slots=True)
class Winner:
    """A commit that was ratified after the version we read."""

    row: VersionRow
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    changes_metadata: bool = False
    """Whether the metadata changed in more than the high-water marks of identity columns."""
    marks: Metadata | None = None
    """The metadata, if its high-water marks are all that changed."""
    changes_protocol: bool = False
    app_ids: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)

    @property
    def is_blind_append(self) -> bool:
        return bool(self.row.info.is_blind_append)

    @property
    def computed_from(self) -> int:
        """The version whose rows this commit may depend on; -1 if it depends on none.

        The log does not record what a commit read, so this is the version on which the commit was
        staged. A commit that only moves rows to other files depends on no rows.
        """
        added = any(file.data_change for file in self.adds)
        removed = any(file.data_change for file in self.removes)
        if self.is_blind_append or not (added or removed):
            return -1
        seen = self.row.info.read_version
        return self.row.version - 1 if seen is None else seen

    def moved(self, paths: Collection[str]) -> set[str]:
        """Return the files that may have the rows of these files after this commit.

        These are all files that the commit added without changing data, if it removed one of the
        given files without changing data. The log does not record which rows a file got.
        """
        moves = any(not each.data_change and each.path in paths for each in self.removes)
        if not moves:
            return set()
        return {each.path for each in self.adds if not each.data_change}


def load_winners(session: Session, table: TableRow, read_version: int, head: Head) -> list[Winner]:
    """Return the commits after a version in order, with a constant number of statements.

    Raises CommitConflictError if that version has expired.
    """
    table_id = table.table_id
    span = {"table_id": table_id, "after": read_version, "last": head.version}
    rows = session.query(
        "history",
        table_id=table_id,
        first=read_version,
        last=head.version,
        limit=head.version - read_version + 1,
    )
    versions = [VersionRow.from_row(row) for row in reversed(rows)]
    if versions[0].version != read_version:
        raise CommitConflictError(
            f"{_FAILED}: the history of version {read_version}, on which the transaction is based, "
            f"has expired: the first version is {versions[0].version}",
            table=table.full_name,
            expected_version=read_version,
            actual_version=head.version,
        )
    winners = {row.version: Winner(row) for row in versions[1:]}
    for row in session.query(
        "adds_between",
        table_id=table_id,
        first_file_id=versions[0].next_file_id,
        next_file_id=head.next_file_id,
    ):
        winners[row[13]].adds.append(add_from_row(row))
    for row in session.query("removes_between", **span):
        winners[row[12]].removes.append(remove_from_row(row))
    _load_metadata(session, table_id, winners, session.query("metadata_between", **span))
    for row in session.query("protocol_between", **span):
        winners[row[0]].changes_protocol = True
    for row in session.query("txns_between", **span):
        winners[row[0]].app_ids.add(row[1])
    for row in session.query("domains_between", **span):
        winners[row[0]].domains.add(row[1])
    return list(winners.values())


def _load_metadata(
    session: Session, table_id: int, winners: dict[int, Winner], rows: Sequence[Row]
) -> None:
    if not rows:
        return
    first = rows[0][0] - 1
    before = metadata_from_row(session.query("metadata_at", table_id=table_id, version=first)[0])
    for row in rows:
        winner, after = winners[row[0]], metadata_from_row(row)
        if changes_only_marks(before, after):
            winner.marks = after
        else:
            winner.changes_metadata = True
        before = after


def check_conflicts(staged: Staged, winners: Sequence[Winner], isolation: Isolation) -> None:
    """Raise the first conflict with a winning commit; winners are checked in version order."""
    head_version = winners[-1].row.version if winners else staged.read_version
    # For each winner, the newest version from which one of the later winners was computed.
    from_last = (winner.computed_from for winner in reversed(winners))
    *read_later, _ = accumulate(from_last, max, initial=-1)
    read_later.reverse()
    # The rows that we read may be in other files by now.
    read_paths = set(staged.reads.paths)
    for winner, version in zip(winners, read_later, strict=True):
        conflict = Conflict(staged, winner, head_version or 0, read_paths, version)
        for rule in RULES:
            rule(conflict, isolation)
        read_paths |= winner.moved(read_paths)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Our commit and the winning commit it is compared with."""

    ours: Staged
    winner: Winner
    head_version: int
    read_paths: Collection[str]
    """The files that we read, and those to which earlier winners moved their rows."""
    read_later: int = -1
    """The newest version that any commit after the winner was computed from."""

    def error(
        self, kind: type[CommitConflictError], message: str, **fields: str
    ) -> CommitConflictError:
        row = self.winner.row
        return kind(
            message,
            table=self.ours.table.full_name,
            expected_version=self.ours.read_version,
            actual_version=self.head_version,
            winning_version=row.version,
            winning_txn_id=row.txn_id,
            winning_operation=row.info.operation,
            **fields,
        )


def protocol_unchanged(c: Conflict, _: Isolation) -> None:
    """Raise if the winner changed the protocol: our commit was checked against the old one."""
    if c.winner.changes_protocol:
        raise c.error(ProtocolChangedError, f"{_FAILED}: Protocol changed since last commit")


def metadata_unchanged(c: Conflict, _: Isolation) -> None:
    """Raise if the winner changed the metadata: our files were written for the old metadata.

    If only high-water marks changed, our commit merges them, unless it is external.
    """
    replaces_marks = c.winner.marks is not None and c.ours.is_external and c.ours.metadata
    if c.winner.changes_metadata or replaces_marks:
        raise c.error(MetadataChangedError, f"{_FAILED}: Metadata changed since last commit")


def no_numbers_of_another_writer(c: Conflict, _: Isolation) -> None:
    """Raise if the winner may have used our identity values, because its writer reserves none."""
    marks = c.winner.marks
    if marks is None or ENGINE_INFO in (c.winner.row.info.engine_info or ""):
        return
    column = overlapping(c.ours, marks)
    if column is not None:
        raise c.error(
            MetadataChangedError,
            f"{_FAILED}: another writer generated values for the identity column {column!r} that "
            "were reserved for this transaction",
        )


def no_append_into_read(c: Conflict, isolation: Isolation) -> None:
    """Raise if the winner added files that our reads would have included.

    With WriteSerializable, a blind append is no conflict if it can be ordered after our commit.
    """
    reads = c.ours.reads
    predicates = reads.predicates + reads.listed
    if isolation is Isolation.SNAPSHOT or not (reads.whole_table or predicates):
        return
    if isolation is Isolation.WRITE_SERIALIZABLE and _may_come_after_us(c):
        return
    overwrites = reads.whole_table and c.ours.info.operation == "WRITE"
    if overwrites and _removed_by_both(c) is not None:
        return  # `no_delete_twice` raises this conflict, with deltalake's message
    tests = [_core.Predicate(predicate.to_pruning_json()) for predicate in predicates]
    for add in c.winner.adds:
        if not add.data_change:
            continue
        partition = json.dumps(dict(add.partition_values))
        if reads.whole_table or any(test.may_match(add.stats, partition) for test in tests):
            raise c.error(
                ConcurrentAppendError,
                f"{_FAILED}: Commit failed: a concurrent transactions added new data: "
                f"{add.path!r}, which this transaction should have read",
            )


def _may_come_after_us(c: Conflict) -> bool:
    """Return whether the winner is a blind append that can be ordered after our commit.

    This is not possible if our commit changes the metadata or the protocol, because the files of
    the append were written for the old ones. It is not possible either if a later winner was
    computed from the append. That later winner read the append but not our commit, so our commit
    cannot be ordered before the append.
    """
    if not c.winner.is_blind_append or c.ours.metadata or c.ours.protocol:
        return False
    return c.read_later < c.winner.row.version


def no_delete_of_read(c: Conflict, _: Isolation) -> None:
    """Raise if the winner removed rows that our commit read.

    A winner that only moved these rows to other files does not conflict, unless our commit adds the
    removed file again, for example with row ids: the table would have the rows twice.
    """
    reads = c.ours.reads
    tests = [_core.Predicate(predicate.to_pruning_json()) for predicate in reads.predicates]
    removed_by_us = {_core.canonical_path(remove.path) for remove in c.ours.removes}
    moves = any(not remove.data_change for remove in c.winner.removes)
    added_by_us = {_core.canonical_path(add.path) for add in c.ours.adds} if moves else set()
    for remove in c.winner.removes:
        path = _core.canonical_path(remove.path)
        if path in removed_by_us or not (remove.data_change or path in added_by_us):
            continue
        partition = (
            None if remove.partition_values is None else json.dumps(dict(remove.partition_values))
        )
        if (
            remove.path in c.read_paths
            or reads.whole_table
            or any(test.may_match(remove.stats, partition) for test in tests)
        ):
            raise c.error(
                ConcurrentDeleteReadError,
                f"{_DELETED}: {remove.path!r}",
            )


def no_vacuum_of_restored(c: Conflict, _: Isolation) -> None:
    """Raise if the winner is a vacuum: it may have deleted files that our restore adds again."""
    restores = c.ours.info.operation in ("RESTORE", "UNDO") and bool(c.ours.adds)
    if restores and (c.winner.row.info.operation or "").startswith("VACUUM"):
        raise c.error(
            ConcurrentDeleteReadError, "a concurrent vacuum may have deleted the restored files"
        )


def no_delete_twice(c: Conflict, _: Isolation) -> None:
    """Raise if the winner removed a file that our commit removes too."""
    path = _removed_by_both(c)
    if path is not None:
        raise c.error(
            ConcurrentDeleteDeleteError,
            f"{_DELETED}: {path!r}, which this transaction also deletes",
        )


def _removed_by_both(c: Conflict) -> str | None:
    removed = {_core.canonical_path(remove.path) for remove in c.winner.removes}
    ours = (remove.path for remove in c.ours.removes)
    return next((path for path in ours if _core.canonical_path(path) in removed), None)


def no_same_application(c: Conflict, _: Isolation) -> None:
    """Raise if the winner set the version of the same application."""
    for txn in c.ours.txns:
        if txn.app_id in c.winner.app_ids:
            raise c.error(
                ConcurrentTransactionError,
                f"{_FAILED}: Concurrent transaction failed: "
                f"application {txn.app_id!r} committed concurrently",
                app_id=txn.app_id,
            )


def no_same_domain(c: Conflict, _: Isolation) -> None:
    """Raise if the winner changed the same metadata domain."""
    for domain in c.ours.domains:
        if domain.domain in c.winner.domains:
            raise c.error(
                ConcurrentDomainMetadataError,
                f"a concurrent commit changed the metadata domain {domain.domain!r}",
                domain=domain.domain,
            )


RULES: tuple[Callable[[Conflict, Isolation], None], ...] = (
    protocol_unchanged,
    metadata_unchanged,
    no_numbers_of_another_writer,
    no_append_into_read,
    no_delete_of_read,
    no_vacuum_of_restored,
    no_delete_twice,
    no_same_application,
    no_same_domain,
)
