"""Every table of a catalog at one moment: commits over several tables are in it whole, or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.snapshot.snapshot import Snapshot
from deltasql.store.records import Head, TableRow

if TYPE_CHECKING:
    from deltasql.snapshot.cache import FileCache
    from deltasql.store.store import Store

_ROW = 8  # columns of a statement that make up a TableRow


class Moment:
    """The heads of all live tables, as one statement found them."""

    def __init__(self, store: Store, cache: FileCache) -> None:
        self._store, self._cache = store, cache
        self._rows = {(row[2], row[3]): row for row in store.query("live_heads")}

    def tables(self) -> list[TableRow]:
        """Return the tables there were."""
        return [TableRow.from_row(row[:_ROW]) for row in self._rows.values()]

    def snapshot(self, namespace: str, name: str) -> Snapshot | None:
        """Return a table as it was; None if there was none of this name."""
        row = self._rows.get((namespace, name))
        if row is None:
            return None
        head = Head(row[0], *row[_ROW:])
        return Snapshot(self._store, TableRow.from_row(row[:_ROW]), self._cache, head)
