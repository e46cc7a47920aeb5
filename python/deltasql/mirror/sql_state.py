"""What SQL says of a table at one version, in the same form as what its log says."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import FileList
from deltasql.mirror.file_tables import FILES, logical_files, same_spelling, tombstone_table
from deltasql.snapshot.cache import FileCache
from deltasql.snapshot.snapshot import Snapshot, open_snapshot
from deltasql.store.records import remove_from_row

if TYPE_CHECKING:
    from deltasql.model.actions import (
        DomainMetadata,
        Metadata,
        Protocol,
        RemoveFile,
        SetTransaction,
    )
    from deltasql.snapshot.snapshot import Totals
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


class SqlState:
    """A table at a version, read when asked for."""

    def __init__(self, store: Store, table: TableRow, version: int) -> None:
        self._store, self._table = store, table
        self._cache = FileCache(max_bytes=0, max_entries=0)
        self._snapshot = open_snapshot(store, table, self._cache, version=version)

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def metadata(self) -> Metadata:
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self._snapshot.protocol

    @cached_property
    def txns(self) -> dict[str, SetTransaction]:
        return self._snapshot.transactions()

    @cached_property
    def domains(self) -> dict[str, DomainMetadata]:
        return self._snapshot.domains()

    @cached_property
    def totals(self) -> Totals:
        return self._snapshot.totals()

    @cached_property
    def files(self) -> pa.Table:
        """The live files, with the columns of `file_tables.FILES`."""
        found = FileList.from_arrow(self._cache.files(self._snapshot, "files_all"))
        named = found.with_partitions(self._store.partition_values(self._table.table_id))
        return same_spelling(pa.RecordBatchReader.from_stream(named).read_all(), FILES)

    @cached_property
    def tombstones(self) -> pa.Table:
        """The files that left up to this version and did not come back."""
        rows = self._store.query(
            "removes_between", table_id=self._table.table_id, after=-1, last=self.version
        )
        removes = (remove_from_row(row) for row in rows)
        last = {_logical_file(each): each for each in removes}
        gone = tombstone_table(last.values())
        alive = pc.is_in(logical_files(gone), logical_files(self.files).combine_chunks())
        return gone.filter(pc.invert(alive))


def _logical_file(remove: RemoveFile) -> tuple[str, str | None]:
    return remove.path, remove.deletion_vector.unique_id if remove.deletion_vector else None
