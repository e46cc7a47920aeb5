"""Requests of Delta's LogStore, with which delta-spark commits to the tables of the catalog.

delta-spark computes a commit for the next version of a table that it knows by its location. The
committer ratifies it as exactly this version, with its actions and its commitInfo unchanged, and
then the log is published. If the version exists, delta-spark checks the commit for conflicts with
it and tries the next version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql._core import parse_commit
from deltasql.commit.staged import Staged
from deltasql.exceptions import (
    InvalidActionError,
    MirrorDivergedError,
    TxnLogConfigError,
    TxnLogMirrorError,
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
    VersionTakenError,
)
from deltasql.migrate.authority.foreign_commits import flush_data_files
from deltasql.mirror.log.encode import commit_file, version_row
from deltasql.mirror.log.same_commit import commit_id, has_same_content
from deltasql.mirror.publish.targets import OWN
from deltasql.model.actions import CommitInfo
from deltasql.storage import absolute_location, open_storage
from deltasql.store.locations import tables_at
from deltasql.store.records import is_usable_id
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.store.records import TableRow

_OTHER: dict[str, Any] = {"registered": False}


def publish(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Publish all commits of the table at a location, so that its log can be listed."""
    table = _managed_table(catalog, body)
    if table is None:
        return _OTHER
    catalog.mirror.publish(join_table_name(table.namespace, table.name), target=OWN)
    return {"registered": True}


def commit(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Commit the actions of a commit file as the version that the request names.

    Raises VersionTakenError if the version exists. A second request with the same commit gets the
    same response as the first one.
    """
    table = _managed_table(catalog, body)
    if table is None:
        return _OTHER
    external = _ExternalCommit(catalog, table, int(body["version"]), str(body["actions"]).encode())
    if not external.is_committed():
        external.ratify()
    external.publish()
    return {"registered": True}


def _managed_table(catalog: Catalog, body: Mapping[str, Any]) -> TableRow | None:
    """Return the table at a location, if the database is its authority."""
    if not catalog.store.exists():
        return None
    try:
        location = absolute_location(str(body["location"]))
    except TxnLogConfigError:
        return None  # deltasql has no tables at such locations
    for table in tables_at(catalog.store.query, location):
        is_hidden = table.dropped_at_ms is not None or table.is_loading
        # For a followed table, the log is the authority: other writers commit to it directly.
        if not is_hidden and not table.is_following:
            # A fence would stop the delta-spark jobs that send such requests: let `fence` warn.
            catalog.has_log_store = True
            return table
    return None


class _ExternalCommit:
    """A commit that another Delta writer wrote for one version of a table."""

    def __init__(self, catalog: Catalog, table: TableRow, version: int, data: bytes) -> None:
        self._catalog, self._table, self._version, self._data = catalog, table, version, data
        self._storage = open_storage(table.location, catalog.config.storage)
        self._actions = parse_commit(data, version=version, path=commit_file(version))
        self._info = self._actions.commit_info or CommitInfo()
        own_id = self._info.txn_id
        if own_id is not None and not is_usable_id(own_id):
            raise InvalidActionError(
                f"{commit_file(version)} has an invalid transaction id: {own_id!r}",
                help="The txnId of a commitInfo must be a string of at most 500 characters.",
            )
        self._txn_id = own_id or commit_id(table, version, data)

    def is_committed(self) -> bool:
        """Return whether the version is this commit; raise if it is another one.

        Raises:
            VersionTakenError: Another commit has this version.
            MirrorDivergedError: The log has a commit that is not in the database.
        """
        head = self._head_version()
        if self._version > head and not self._storage.exists(commit_file(head + 1)):
            return False
        # Another process may have committed and published the version since the head was read.
        head = self._head_version()
        if self._version > head:
            raise MirrorDivergedError(
                f"version {head + 1} of the log of {self._table.full_name} was written without the "
                "database; nothing was committed",
                table=self._table.full_name,
                version=head + 1,
                location=self._table.location,
            )
        store = self._catalog.store
        row = version_row(store, self._table.table_id, self._version)
        is_same = row is not None and row.txn_id == self._txn_id
        if is_same and has_same_content(store, self._table, self._version, self._data):
            return True
        raise VersionTakenError(
            f"{self._table.full_name} already has version {self._version}",
            table=self._table.full_name,
            expected_version=self._version - 1,
            actual_version=head,
        )

    def ratify(self) -> None:
        """Commit to the database."""
        self._catalog.log_ahead.check(self._table)
        flush_data_files(self._storage, self._data)
        try:
            (done,) = self._catalog.committer.commit([self._staged()], self._txn_id)
        except VersionTakenError:
            # The same request may have been sent twice, and its other copy may have been faster.
            self.is_committed()
            return
        if done.version != self._version:
            raise TxnLogTransactionError(
                f"the transaction {self._txn_id} is already version {done.version} of "
                f"{self._table.full_name}; it was not committed again as {self._version}",
                table=self._table.full_name,
            )
        self._catalog.mirror.after_commit([done])

    def publish(self) -> None:
        """Publish the commit; raise if this fails, because Delta reads the commit from the log."""
        name = join_table_name(self._table.namespace, self._table.name)
        try:
            self._catalog.mirror.publish(name, target=OWN)
        except Exception as error:
            raise TxnLogMirrorError(
                f"version {self._version} of {name} is committed, but it could not be published: "
                f"{error}",
                table=name,
                version=self._version,
                location=self._table.location,
            ) from error

    def _staged(self) -> Staged:
        staged = Staged(
            self._table,
            read_version=self._version - 1,
            must_be_next=True,
            is_external=True,
            info=self._info,
        )
        actions = self._actions.actions()
        staged.extend(each for each in actions if not isinstance(each, CommitInfo))
        return staged

    def _head_version(self) -> int:
        head = self._catalog.store.head(self._table.table_id)
        if head is None:
            raise TxnLogTableNotFoundError(
                f"table {self._table.full_name} no longer exists", table=self._table.full_name
            )
        return head.version
