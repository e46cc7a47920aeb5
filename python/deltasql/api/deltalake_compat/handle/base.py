"""RawBase: a table at one version, and the commit of its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deltasql.exceptions import VersionNotFoundError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.model.reported_protocol import reported_protocol
from deltasql.snapshot.snapshot import Snapshot, open_snapshot
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.actions import Protocol
    from deltasql.store.records import TableRow

T = TypeVar("T")


def end_version_error(error: VersionNotFoundError, table: str | None) -> VersionNotFoundError:
    """Return the error for a missing version, with deltalake's message followed by ours."""
    return VersionNotFoundError(
        f"LogSegment end version {error.latest} not the same as the specified end version "
        f"{error.version}: {error.message}",
        table=table,
        version=error.version,
        latest=error.latest,
        prefix=KERNEL_ERROR,
    )


class RawBase:
    """A table of a catalog and a snapshot of its current version."""

    def __init__(
        self,
        catalog: Catalog,
        row: TableRow,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        self.catalog, self.row = catalog, row
        self.snapshot = self._open(version, timestamp)

    @property
    def name(self) -> str:
        """The name for `catalog.table`, with the namespace if it is not the default one."""
        return join_table_name(self.row.namespace, self.row.name)

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

    def _open(self, version: int | None = None, timestamp: datetime | None = None) -> Snapshot:
        catalog = self.catalog
        return open_snapshot(
            catalog.store, self.row, catalog.cache, version=version, timestamp=timestamp
        )

    def _commit(
        self,
        operate: Callable[[MultiTableTransaction], T],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> T:
        """Run an operation on the current snapshot, commit it, and open the new version.

        If the operation stages nothing, there is no commit and the snapshot stays the same.
        """
        with self.catalog.begin(one_table=True) as tx:
            tx.pin(self.name, self.snapshot)
            result = operate(tx)
            tx.set_commit_properties(self.name, commit_properties)
            tx.set_post_commit(post_commithook_properties)
        if self.name in tx.versions:
            self.snapshot = self._open(tx.versions[self.name])
        return result
