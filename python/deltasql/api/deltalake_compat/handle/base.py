"""A handle on one table at one version, and how its operations commit."""

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
    """Say of a version that is not there what deltalake says, and what there is."""
    return VersionNotFoundError(
        f"LogSegment end version {error.latest} not the same as the specified end version "
        f"{error.version}: {error.message}",
        table=table,
        version=error.version,
        latest=error.latest,
        prefix=KERNEL_ERROR,
    )


class RawBase:
    """State of a handle: its table, the version it looks at, the options of its storage."""

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
        """The table's name as the catalog takes it."""
        return join_table_name(self.row.namespace, self.row.name)

    def reported_protocol(self) -> Protocol:
        """Return the protocol as deltalake's calls know it."""
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
        """Run an operation on the version this handle looks at, commit it, and follow it.

        An operation that stages nothing commits nothing, and the handle stays where it is.
        """
        with self.catalog.begin(one_table=True) as tx:
            tx.pin(self.name, self.snapshot)
            result = operate(tx)
            tx.set_commit_properties(self.name, commit_properties)
            tx.set_post_commit(post_commithook_properties)
        if self.name in tx.versions:
            self.snapshot = self._open(tx.versions[self.name])
        return result
