"""The data files that a transaction writes: recorded as intents, deleted if it does not commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql import telemetry
from deltasql.exceptions import TxnLogError
from deltasql.phases import reached
from deltasql.storage import open_storage
from deltasql.storage.deletion import Deletable, delete_data
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.commit.staged import Staged

_log = logging.getLogger(__name__)


class WrittenFiles:
    """The data files of one transaction. A name that ends with `/` is an engine's folder."""

    def __init__(self, catalog: BaseCatalog, txn_id: str) -> None:
        self.txn_id = txn_id
        self._catalog = catalog
        self._earlier_intents = 0
        self._files: list[tuple[str, str]] = []

    def continue_transaction(self, txn_id: str, *, intents: int) -> None:
        """Continue the transaction of another process, which has recorded `intents` intents."""
        self.txn_id, self._earlier_intents = txn_id, intents

    @property
    def intents(self) -> int:
        """How many intents are recorded under the id of the transaction."""
        return self._earlier_intents + len(set(self._files))

    def record(self, staged: Staged, names: list[str]) -> None:
        """Record intents for files of a table; called before the files are written."""
        if staged.table.is_following:  # there may have been a cutover: read the row again
            table = staged.table
            staged.table = self._catalog.writable(join_table_name(table.namespace, table.name))
        location = staged.table.location
        self._catalog.store.record_intents(
            self.txn_id, staged.table.table_id, [f"{location}/{name}" for name in names]
        )
        self._files += [(location, name) for name in names]
        reached("intended")

    def discard(self) -> None:
        """Delete the files of a transaction that is certain not to be committed.

        A file that cannot be deleted now keeps its intent, so that a vacuum can delete it later.
        """
        try:
            for location in dict.fromkeys(location for location, _ in self._files):
                self._delete(location, [name for place, name in self._files if place == location])
            if self._files:
                self._catalog.store.clear_intents(self.txn_id)
        except (OSError, TxnLogError) as error:
            telemetry.log(
                _log, logging.WARNING, "files not discarded", txn_id=self.txn_id, error=str(error)
            )
        self._files.clear()

    def discard_superseded(self, committed: Collection[Staged]) -> None:
        """Delete files that a later operation of the transaction replaced; no reader saw them."""
        if not self._files:
            return
        kept = {
            (each.table.location, unquote(path))
            for each in committed
            for path in (*(f.path for f in each.adds), *(f.path for f in each.cdc))
        }
        # Skip folders, because the files in them were also recorded one by one.
        self._files = [
            each for each in self._files if each not in kept and not each[1].endswith("/")
        ]
        self.discard()

    def _delete(self, location: str, names: list[str]) -> None:
        storage = open_storage(location, self._catalog.config.storage)
        folders = [name for name in names if name.endswith("/")]
        inside = [info.name for folder in folders for info in storage.list(folder)]
        files = [*(name for name in names if not name.endswith("/")), *inside]
        deletable = Deletable(storage, partition_columns=None, engine_folders=folders)
        delete_data(storage, files, deletable)
