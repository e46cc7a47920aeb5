"""Read the content of a checkpoint from the database, in pieces of bounded size."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql import _core
from deltasql.exceptions import VersionNotFoundError
from deltasql.mirror.checkpoint.rows import REMOVES_PAGE
from deltasql.model.clock import now_ms
from deltasql.model.properties import TableProperties, is_expired
from deltasql.snapshot.files import read_files
from deltasql.store.records import Head, domain_from_row, load_dv, txn_from_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.model.actions import Action, SetTransaction
    from deltasql.store.dialect import Row
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# The number of file ids or rows that one statement reads into memory.
FILES_PER_READ = 20_000
_FIRST_PAGE = 100
_ENABLED_AT = "delta.inCommitTimestampEnablementVersion"
_MILLISECOND = timedelta(milliseconds=1)


class CheckpointSource:
    """The content of the checkpoint of one version of a table."""

    def __init__(self, store: Store, table: TableRow, version: int) -> None:
        rows = store.query("head_at_version", table_id=table.table_id, version=version)
        if not rows:
            raise VersionNotFoundError(f"{table.full_name} has no version {version}")
        self.store, self.version = store, version
        self.table_id, self._head, self._now_ms = table.table_id, Head(*rows[0]), now_ms()
        self.table_uuid = table.table_uuid
        self.metadata = store.metadata(self.table_id, self._head.metadata_version)
        self.protocol = store.protocol(self.table_id, self._head.protocol_version)
        self._properties = TableProperties(self.metadata.configuration)

    def actions(self) -> list[Action]:
        """Return the protocol, metadata, application transactions and domain metadata."""
        at = {"table_id": self.table_id, "version": self.version}
        txns = [txn_from_row(row) for row in self.store.query("txn_versions", **at)]
        domains = [domain_from_row(row) for row in self.store.query("domains_at", **at)]
        return [
            self.protocol,
            self.metadata,
            *self._recent(txns),
            *(domain for domain in domains if not domain.removed),
        ]

    def check_not_expired(self) -> None:
        """Raise VersionNotFoundError if the version expired while its files were read."""
        self.store.check_version(self.table_id, self.version)

    def partitions(self) -> pa.Table:
        """Return the partitions of the table, with their ids and their values as JSON."""
        values = self.store.partition_values(self.table_id)
        columns = [pa.array(values.keys(), pa.int64()), pa.array(values.values(), pa.string())]
        return pa.table(columns, ["partition_id", "partition_values"])

    def live_files(self) -> Iterator[pa.Table]:
        """Yield the live files in ranges of their ids."""
        end = self._head.next_file_id
        at = {"table_id": self.table_id, "version": self.version}
        for first in range(1, end, FILES_PER_READ):
            span = {"first_file_id": first, "next_file_id": min(first + FILES_PER_READ, end)}
            if span["next_file_id"] - first < self.store.dialect.bulk_files:
                found = read_files(self.store, "files_all", **at, **span)
            else:
                found = self.store.arrow("files_plain", **at, **span)
                if pc.max(found["has_more"]).as_py():
                    found = read_files(self.store, "files_all", **at, **span)
                elif found.num_rows:
                    found = _with_empty_columns(found.cast(_PLAIN))
            if found.num_rows:
                yield found

    def _timestamps_since(self) -> int:
        """Return the first version with an in-commit timestamp."""
        if not self._properties.in_commit_timestamps:
            return self.version + 1
        return int(self.metadata.configuration.get(_ENABLED_AT, 0))

    def tombstones(self) -> Iterator[pa.Table]:
        """Yield the remove actions that are within the deleted-file retention.

        Remove actions of files that were added again later are left out.
        """
        since_ms = self._now_ms - self._properties.deleted_file_retention // _MILLISECOND
        rows = self.store.query("head_at_time", table_id=self.table_id, timestamp_ms=since_ms)
        before = Head(*rows[0]) if rows else None
        if before is not None and before.version < self._timestamps_since():
            before = None  # these commit times are file times, so a deletion may be later
        after, ordinal = before.version if before else -1, _LAST_ORDINAL
        readded = _Readded(self, before.next_file_id if before else 1)
        at = {"table_id": self.table_id, "version": self.version, "deleted_after_ms": since_ms}
        # Read the first page with a plain query: most tables have few tombstones, and a bulk read
        # is slow to start.
        rows = self.store.query(
            "removes_page", **at, after=after, ordinal=ordinal, limit=_FIRST_PAGE
        )
        removes, limit = _removes(rows), _FIRST_PAGE
        while removes.num_rows:
            yield readded.drop(removes)
            if removes.num_rows < limit:
                return
            after, ordinal = removes["version"][-1].as_py(), removes["ordinal"][-1].as_py()
            limit = FILES_PER_READ
            page = self.store.arrow("removes_page", **at, after=after, ordinal=ordinal, limit=limit)
            removes = page.cast(REMOVES_PAGE)

    def added_keys(self, first_file_id: int) -> pa.Table:
        """Return key and version of all files added from a file id on, including removed files."""
        found = self.store.arrow(
            "added_keys",
            table_id=self.table_id,
            first_file_id=first_file_id,
            next_file_id=self._head.next_file_id,
        )
        return found.cast(_ADDED_KEYS)

    def _recent(self, txns: Iterable[SetTransaction]) -> Iterable[SetTransaction]:
        retention = self._properties.set_transaction_retention
        return (txn for txn in txns if not is_expired(txn, retention, self._now_ms))


def _removes(rows: list[Row]) -> pa.Table:
    if not rows:
        return REMOVES_PAGE.empty_table()
    columns = [pa.array(values) for values in zip(*rows, strict=True)]
    return pa.table(columns, REMOVES_PAGE.names).cast(REMOVES_PAGE)


def _with_empty_columns(files: pa.Table) -> pa.Table:
    for name in ("tags", "deletion_vector", "clustering_provider"):
        files = files.append_column(name, pa.repeat(pa.scalar(""), files.num_rows))
    for name in ("base_row_id", "default_row_commit_version"):
        files = files.append_column(name, pa.nulls(files.num_rows, pa.int64()))
    return files


_PLAIN = pa.schema(
    [
        ("path", pa.string()),
        ("partition_id", pa.int64()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("stats", pa.string()),
        ("has_more", pa.int64()),
    ]
)
_LAST_ORDINAL = 2**62
_ADDED_KEYS = pa.schema([("path_key", pa.binary()), ("added_version", pa.int64())])


class _Readded:
    """Drops remove actions of logical files that were added again later."""

    def __init__(self, source: CheckpointSource, first_file_id: int) -> None:
        self._source, self._first_file_id = source, first_file_id

    @cached_property
    def _added(self) -> pa.Table:
        return self._source.added_keys(self._first_file_id)

    def drop(self, removes: pa.Table) -> pa.Table:
        if not self._added.num_rows:
            return removes
        paths, vectors = removes["path"].to_pylist(), removes["deletion_vector"].to_pylist()
        keys = [
            _core.path_key(path, vector.unique_id if (vector := load_dv(text)) else None)
            for path, text in zip(paths, vectors, strict=True)
        ]
        mine = pc.is_in(self._added["path_key"], value_set=pa.array(keys, pa.binary()))
        if not pc.any(mine).as_py():
            return removes
        again = self._added.filter(mine)
        last_added = dict(
            zip(again["path_key"].to_pylist(), again["added_version"].to_pylist(), strict=True)
        )
        # If one commit removes a file and adds it, the file is live afterwards.
        kept = [
            last_added.get(key, -1) < version
            for key, version in zip(keys, removes["version"].to_pylist(), strict=True)
        ]
        return removes.filter(pa.array(kept, pa.bool_()))
