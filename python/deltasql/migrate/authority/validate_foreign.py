"""Validate foreign commits: they must be applicable to the state of the table in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.commit.staged import Staged, validate_against, validate_staged
from deltasql.commit.table_state import table_state, validate_table
from deltasql.exceptions import InvalidActionError, UnsupportedFeatureError
from deltasql.model.actions import CommitInfo
from deltasql.model.protocol import check_writable
from deltasql.store.append import file_keys, live_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.mirror.log.read import LogCommit
    from deltasql.model.actions import AddFile, RemoveFile
    from deltasql.store.records import Head, TableRow
    from deltasql.store.store import Store


def cannot_adopt(table: TableRow, commit: LogCommit) -> str:
    """Return what to do about a foreign commit that cannot be adopted."""
    return (
        f"Nothing was changed. The foreign commit is version {commit.version} of the log. Restore "
        f"the table to the state that this commit expects, or move the foreign commits out of the "
        f"log with `deltasql mirror reject {table.full_name}`."
    )


class ForeignValidator:
    """Validates foreign commits in order, each against the state after the previous one."""

    def __init__(self, store: Store, table: TableRow, head: Head) -> None:
        self._store, self._table = store, table
        self._state = table_state(
            store.metadata(table.table_id, head.metadata_version),
            store.protocol(table.table_id, head.protocol_version),
        )
        self._removed: set[bytes] = set()
        self._added: set[bytes] = set()

    @property
    def is_managed_by_sql(self) -> bool:
        """Whether deltasql can write to the table and in-commit timestamps block other writers."""
        try:
            check_writable(self._state.protocol)
        except UnsupportedFeatureError:
            return False
        return self._state.in_commit_timestamps

    def validate(self, commit: LogCommit, *, keeps_version: bool = True) -> None:
        """Raise if deltasql itself would have rejected the commit.

        A commit that does not keep its version gets a new timestamp with its new version.
        """
        info = commit.actions.commit_info or CommitInfo()
        staged = Staged(self._table, info=info)
        staged.extend(each for each in commit.actions.actions() if not isinstance(each, CommitInfo))
        validate_staged(staged)
        self._check_metadata(staged, commit)
        validate_against(staged, self._state)
        timestamp_is_missing = self._state.in_commit_timestamps and info.in_commit_timestamp is None
        if keeps_version and timestamp_is_missing:
            raise self._error(commit, "has no in-commit timestamp, which the table requires")
        self._check_files(staged, commit)

    def _check_metadata(self, staged: Staged, commit: LogCommit) -> None:
        if staged.metadata is None and staged.protocol is None:
            return
        metadata = staged.metadata or self._state.metadata
        protocol = staged.protocol or self._state.protocol
        validate_table(metadata, protocol)
        if metadata.partition_columns != self._state.metadata.partition_columns:
            raise self._error(commit, "changes the partition columns")
        if metadata.id != self._state.metadata.id:
            raise self._error(commit, "gives the table another id: it is a commit of another table")
        self._state = table_state(metadata, protocol)

    def _check_files(self, staged: Staged, commit: LogCommit) -> None:
        removed, added = file_keys(staged.removes), file_keys(staged.adds)
        live = self._live({**removed, **added})
        for key, file in removed.items():
            if key not in live:
                raise self._error(commit, f"removes {file.path}, which is not live")
        for key, add in added.items():
            if key in live and key not in removed:
                raise self._error(commit, f"adds {add.path}, which is live already")
        self._removed = (self._removed | removed.keys()) - added.keys()
        self._added = (self._added - removed.keys()) | added.keys()

    def _live(self, files: Mapping[bytes, AddFile | RemoveFile]) -> set[bytes]:
        found = live_files(self._store.query, self._table.table_id, files) if files else {}
        return (found.keys() - self._removed) | self._added

    def _error(self, commit: LogCommit, reason: str) -> InvalidActionError:
        return InvalidActionError(
            f"{commit.file.name} cannot be adopted: it {reason}",
            table=self._table.full_name,
            help=cannot_adopt(self._table, commit),
        )
