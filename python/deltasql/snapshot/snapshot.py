"""Snapshot: a table at a version. Cheap to open: nothing is fetched before it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError
from deltasql.model.clock import from_ms, to_ms
from deltasql.model.protocol import check_readable
from deltasql.model.schema.schema import StructType, column_mapping_mode
from deltasql.snapshot.scan import Scan
from deltasql.store.records import Head, TableRow, VersionRow, domain_from_row, txn_from_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import pyarrow as pa

    from deltasql.model.actions import DomainMetadata, Metadata, Protocol, SetTransaction
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.snapshot.cache import FileCache
    from deltasql.store.records import SkippingColumn
    from deltasql.store.store import Store

HISTORY_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Totals:
    """What the live files add up to; `num_records` is None when a file has no statistics."""

    num_files: int
    size_bytes: int
    num_records: int | None


class Snapshot:
    """One version of one table."""

    def __init__(self, store: Store, table: TableRow, cache: FileCache, head: Head) -> None:
        self.store, self.table, self.cache = store, table, cache
        self.version = head.version
        self.committed_at_ms = head.committed_at_ms
        self.next_file_id = head.next_file_id
        self._metadata_version = head.metadata_version
        self._protocol_version = head.protocol_version

    def __repr__(self) -> str:
        return f"Snapshot({self.table.full_name!r}, version={self.version})"

    # What the table is

    @property
    def metadata(self) -> Metadata:
        """Schema, partitioning and properties in force."""
        return self.store.metadata(self.table.table_id, self._metadata_version)

    @property
    def protocol(self) -> Protocol:
        """What readers and writers must understand."""
        return self.store.protocol(self.table.table_id, self._protocol_version)

    @cached_property
    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.from_json(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def committed_at(self) -> datetime:
        """When this version was ratified."""
        return from_ms(self.committed_at_ms)

    def skipping_columns(self) -> list[SkippingColumn]:
        """Return the columns whose bounds are indexed."""
        return self.store.skipping_columns(self.table.table_id, self._metadata_version)

    def transactions(self) -> dict[str, SetTransaction]:
        """Return the last version of every application."""
        rows = self.store.query("txn_versions", **self._at())
        return {row[0]: txn_from_row(row) for row in rows}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version an application committed."""
        rows = self.store.query("txn_version_of", app_id=app_id, **self._at())
        return rows[0][0] if rows else None

    def domains(self) -> dict[str, DomainMetadata]:
        """Return the live metadata domains."""
        found = (domain_from_row(row) for row in self.store.query("domains_at", **self._at()))
        return {domain.domain: domain for domain in found if not domain.removed}

    # What is in it

    def totals(self) -> Totals:
        """Count the live files without fetching them."""
        files, size, records, with_records = self.store.query("live_totals", **self._at())[0]
        self.store.tell_table("files_active", int(files), self.table.full_name)
        return Totals(int(files), int(size), int(records or 0) if with_records == files else None)

    def files(self) -> pa.Table:
        """Return every live file with its statistics as Arrow."""
        check_readable(self.protocol)
        return self.cache.files(self, "files_all")

    def file_paths(self) -> pa.Table:
        """Return every live file without statistics: less to fetch when only listing."""
        check_readable(self.protocol)
        return self.cache.files(self, "files_brief")

    def files_to_read(self) -> pa.Table:
        """Return what an engine must know of every live file to read it."""
        check_readable(self.protocol)
        return self.cache.files(self, "files_to_read")

    def scan(self, predicate: object = None) -> Scan:
        """Plan a read: the files that can hold a row for which the predicate is true."""
        check_readable(self.protocol)
        parsed = None if predicate is None else self.predicate(predicate)
        return Scan(self, parsed)

    def predicate(self, text: object) -> Predicate:
        """Parse SQL text or deltalake's filter lists against this schema."""
        # late: sqlglot is large, and a list of all files needs no parser
        from deltasql.model.predicates.predicate import Predicate, parse_predicate

        if isinstance(text, Predicate):
            return text
        return parse_predicate(
            text,
            self.schema,
            self.partition_columns,
            column_mapping_mode(self.metadata.configuration),
        )

    # How it came to be

    def history(
        self, limit: int | None = None, *, before: int | None = None
    ) -> Iterator[VersionRow]:
        """Yield commits, newest first, a page per statement."""
        last = self.version if before is None else min(self.version, before - 1)
        remaining = last + 1 if limit is None else limit
        while remaining > 0 and last >= 0:
            rows = self.store.query(
                "history",
                table_id=self.table.table_id,
                first=0,
                last=last,
                limit=min(remaining, HISTORY_PAGE),
            )
            if not rows:
                return
            yield from (VersionRow.from_row(row) for row in rows)
            remaining -= len(rows)
            last = rows[-1][0] - 1

    def _at(self) -> dict[str, int]:
        return {"table_id": self.table.table_id, "version": self.version}


def open_snapshot(
    store: Store,
    table: TableRow,
    cache: FileCache,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Snapshot:
    """Open a table at its head, at a version, or as it was at a moment."""
    if version is None and timestamp is None:
        head = store.head(table.table_id)
        if head is None or head.live_name is None:
            store.forget_table(table)
            raise TxnLogTableNotFoundError(
                f"table {table.full_name} was dropped", table=table.full_name
            )
        return Snapshot(store, table, cache, head)
    if version is not None:
        return Snapshot(store, table, cache, _head_at_version(store, table, version))
    assert timestamp is not None
    return Snapshot(store, table, cache, _head_at_time(store, table, timestamp))


def snapshots_as_of(store: Store, cache: FileCache, timestamp: datetime) -> list[Snapshot]:
    """Open every table of the catalog as it was at one moment, with one statement."""
    rows = store.query("heads_as_of", timestamp_ms=to_ms(timestamp))
    return [
        Snapshot(store, TableRow.from_row(row[:8]), cache, Head(row[0], *row[8:])) for row in rows
    ]


def _head_at_version(store: Store, table: TableRow, version: int) -> Head:
    rows = store.query("head_at_version", table_id=table.table_id, version=version)
    if not rows:
        low, high = store.query("version_bounds", table_id=table.table_id)[0]
        raise VersionNotFoundError(
            f"{table.full_name} has no version {version}; it has {low} to {high}",
            version=version,
            latest=high,
        )
    return Head(*rows[0])


def _head_at_time(store: Store, table: TableRow, timestamp: datetime) -> Head:
    at_ms = to_ms(timestamp)
    rows = store.query("head_at_time", table_id=table.table_id, timestamp_ms=at_ms)
    if not rows:
        raise VersionNotFoundError(
            f"{table.full_name} had no version at {from_ms(at_ms).isoformat()}",
            help="Ask for a later moment; history() lists when each version was committed.",
        )
    return Head(*rows[0])
