"""The state of a table at one version in the database, in the same form as `LogState`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import FileList
from deltasql.mirror.log.file_tables import FILES, TOMBSTONES, canonical_files, logical_files
from deltasql.model.clock import now_ms
from deltasql.model.properties import TableProperties, is_expired
from deltasql.snapshot.files import FileCache, read_files
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.store.records import metadata_from_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from deltasql.model.actions import (
        DomainMetadata,
        Metadata,
        Protocol,
        SetTransaction,
    )
    from deltasql.snapshot.snapshot import Totals
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


_FIRST_TIME, _NO_LIMIT = -(2**62), 2**62
_PAGE = 50_000  # files per page


class SqlState:
    """A table at a version; each part is read from the database when it is first used."""

    def __init__(self, store: Store, table: TableRow, version: int) -> None:
        self._store, self._table = store, table
        no_cache = FileCache(max_bytes=0, max_entries=0)
        self._snapshot = open_snapshot(store, table, no_cache, version=version)

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def metadata(self) -> Metadata:
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self._snapshot.protocol

    @cached_property
    def txns(self) -> dict[str, SetTransaction]:
        return self._snapshot.transactions()

    def expired(self, txn: SetTransaction) -> bool:
        """Return whether a checkpoint of this version may leave out a transaction by now."""
        return is_expired(txn, self._shortest_retention, now_ms())

    @cached_property
    def _shortest_retention(self) -> timedelta | None:
        """The shortest retention of application transactions that the table ever had."""
        rows = self._store.query(
            "metadata_between", table_id=self._table.table_id, after=-1, last=self.version
        )
        properties = (TableProperties(metadata_from_row(row).configuration) for row in rows)
        retentions = [each.set_transaction_retention for each in properties]
        return min((each for each in retentions if each is not None), default=None)

    @cached_property
    def domains(self) -> dict[str, DomainMetadata]:
        return self._snapshot.domains()

    @cached_property
    def totals(self) -> Totals:
        return self._snapshot.totals()

    @cached_property
    def files(self) -> pa.Table:
        """The live files, with the schema `file_tables.FILES`."""
        return self._read_files(0, self._snapshot.next_file_id)

    def file_pages(self) -> Iterator[pa.Table]:
        """Yield the live files in pages, with the schema `file_tables.FILES`."""
        end = self._snapshot.next_file_id
        for first in range(0, end, _PAGE):
            yield self._read_files(first, min(first + _PAGE, end))

    def _read_files(self, first_file_id: int, next_file_id: int) -> pa.Table:
        # Not `Snapshot.files`, which raises if the table needs an unsupported reader feature.
        files = read_files(
            self._store,
            "files_all",
            table_id=self._table.table_id,
            version=self.version,
            first_file_id=first_file_id,
            next_file_id=next_file_id,
        )
        named = FileList.from_arrow(files).with_partitions(self._partitions)
        return canonical_files(pa.RecordBatchReader.from_stream(named).read_all(), FILES)

    @cached_property
    def _partitions(self) -> dict[int, str]:
        return self._store.partition_values(self._table.table_id)

    @cached_property
    def tombstones(self) -> pa.Table:
        """The files removed up to this version and not added again.

        Remove actions without a timestamp are left out, as in a checkpoint.
        """
        found = self._store.arrow(
            "removes_page",
            table_id=self._table.table_id,
            version=self.version,
            after=-1,
            ordinal=-1,
            deleted_after_ms=_FIRST_TIME,
            limit=_NO_LIMIT,
        )
        removed = found.rename_columns(
            ["partition" if each == "partition_values" else each for each in found.schema.names]
        )
        removed = removed.set_column(
            removed.schema.get_field_index("partition"),
            "partition",
            _or_empty(removed["partition"]),
        )
        tombstones = canonical_files(removed, TOMBSTONES)
        # A file may have been removed several times. Use the last time, if the file is not live.
        names = logical_files(tombstones)
        rows = pa.table({"name": names, "row": pa.array(range(len(names)), pa.int64())})
        last = rows.group_by("name").aggregate([("row", "max")])["row_max"]
        alive = pc.is_in(names, logical_files(self.files).combine_chunks())
        kept = pc.and_(pc.is_in(rows["row"], last.combine_chunks()), pc.invert(alive))
        return tombstones.filter(kept)


def _or_empty(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = texts.cast(pa.string())
    return pc.if_else(pc.equal(plain, ""), "{}", plain)
