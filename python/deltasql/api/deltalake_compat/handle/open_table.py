"""OpenTable: a table at one version, and the commits that are based on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deltasql.api.arguments import unsigned
from deltasql.api.catalog.connect import find_table, parse_table_uri
from deltasql.engine.files.live_files import LiveFiles
from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.model.reported_protocol import reported_protocol
from deltasql.snapshot.snapshot import Snapshot, open_snapshot
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Any, Self

    import pyarrow as pa
    from deltalake import CommitProperties, PostCommitHookProperties
    from sqlglot import exp

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.catalog.connect import TableUri
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.actions import Protocol
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.store.records import TableRow

T = TypeVar("T")


class OpenTable:
    """A table of a catalog at one version; a commit changes it to the new version."""

    def __init__(
        self,
        catalog: Catalog,
        row: TableRow,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        self.catalog, self.row = catalog, row
        self.snapshot = self.snapshot_at(version, timestamp)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, version={self.snapshot.version})"

    @classmethod
    def open(
        cls,
        table_uri: TableUri,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Open a table with two SQL statements; `version` overrides the version of the URI."""
        uri = parse_table_uri(table_uri)
        wanted = uri.version if version is None else unsigned(version)
        catalog, row = find_table(uri, storage_options)
        if wanted is None:
            return cls(catalog, row, timestamp=uri.timestamp)
        try:
            return cls(catalog, row, version=wanted)
        except VersionNotFoundError as error:
            raise end_version_error(error, uri.table_name) from error

    @staticmethod
    def is_deltatable(
        table_uri: TableUri, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Return whether a table exists at this URI."""
        try:
            find_table(parse_table_uri(table_uri), storage_options)
        except TxnLogTableNotFoundError:
            return False
        return True

    @property
    def name(self) -> str:
        """The name for `catalog.table`, with the namespace if it is not the default one."""
        return join_table_name(self.row.namespace, self.row.name)

    def snapshot_at(
        self, version: int | None = None, timestamp: datetime | None = None
    ) -> Snapshot:
        """Return the snapshot of a version or at a timestamp; the latest one by default."""
        catalog = self.catalog
        return open_snapshot(
            catalog.store, self.row, catalog.cache, version=version, timestamp=timestamp
        )

    def reported_protocol(self) -> Protocol:
        """Return the protocol in the form that deltalake reports."""
        snapshot = self.snapshot
        return reported_protocol(
            snapshot.protocol,
            snapshot.schema,
            snapshot.metadata.configuration,
            has_named_features=lambda: bool(
                self.catalog.store.query(
                    "operation_until",
                    table_id=self.row.table_id,
                    version=snapshot.version,
                    operation="ADD FEATURE",
                )
            ),
        )

    def listed(
        self, predicate: str | Sequence[Any] | exp.Expr | Predicate | None = None
    ) -> pa.Table:
        """Return the files of a scan: newest commit first, sorted by path within a commit.

        A predicate skips files that cannot contain a matching row.
        """
        return in_log_order(self.snapshot.scan(predicate).arrow)

    def live(self, listed: pa.Table) -> LiveFiles:
        """Return listed files in the form that an engine reads."""
        settings = self.catalog.config.storage
        return LiveFiles(self.row.location, self.snapshot.metadata, listed, settings)

    def storage_options(self) -> dict[str, str]:
        """Return the storage options of the table, secrets included: pass them to drivers only."""
        return self.catalog.config.storage.plain_options(self.row.location)

    def commit(
        self,
        operate: Callable[[MultiTableTransaction], T],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> T:
        """Run an operation on the current snapshot, commit it, and load the new version.

        If the operation stages nothing, there is no commit and the snapshot stays the same.
        """
        with self.catalog.begin(one_table=True) as tx:
            tx.pin(self.name, self.snapshot)
            result = operate(tx)
            tx.set_commit_properties(self.name, commit_properties)
            tx.set_post_commit(post_commithook_properties)
        if self.name in tx.versions:
            self.snapshot = self.snapshot_at(tx.versions[self.name])
        return result


def end_version_error(error: VersionNotFoundError, table: str | None) -> VersionNotFoundError:
    """Return the error for a missing version: deltalake's message, followed by ours."""
    return VersionNotFoundError(
        f"LogSegment end version {error.latest} not the same as the specified end version "
        f"{error.version}: {error.message}",
        table=table,
        version=error.version,
        latest=error.latest,
        prefix=KERNEL_ERROR,
    )


def in_log_order(listed: pa.Table) -> pa.Table:
    """Sort files in the order in which deltalake lists the files of a published log."""
    if listed.num_rows < 2:
        return listed
    return listed.sort_by([("added_version", "descending"), ("path", "ascending")])
