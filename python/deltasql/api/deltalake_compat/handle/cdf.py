"""`load_cdf`: the change data feed of a table, in deltalake's format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from arro3.core import RecordBatchReader

from deltasql.api.arguments import check_flags, check_sequence, check_unsigned
from deltasql.engine.base import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogError, VersionNotFoundError
from deltasql.model.clock import from_ms, now_ms, parse_rfc3339, to_ms
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable
    from deltasql.model.actions import Metadata

_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")
_ENABLED = "delta.enableChangeDataFeed"
_VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
_OWN_TYPES = {
    CHANGE_TYPE: pa.string_view(),
    COMMIT_VERSION: pa.uint64(),
    COMMIT_TIMESTAMP: pa.timestamp("ms"),
}


def load_cdf(
    table: OpenTable,
    columns: list[str] | None = None,
    predicate: str | None = None,
    starting_version: int | None = 0,
    ending_version: int | None = None,
    starting_timestamp: str | None = None,
    ending_timestamp: str | None = None,
    allow_out_of_range: bool = False,
) -> RecordBatchReader:
    """Stream the change data of a range of versions, both ends included.

    If both versions and timestamps are given, only commits within both ranges are returned.
    """
    from deltasql.operations.changes.feed import ChangeFeed  # lazy import: loads the SQL parser

    check_unsigned(starting_version, ending_version)
    if columns is not None:
        check_sequence(columns, str)
    check_flags(allow_out_of_range)
    begins, ends = _milliseconds(starting_timestamp), _milliseconds(ending_timestamp)
    if starting_version is None and begins is None:
        raise TxnLogError("External error: No starting version or timestamp provided for CDC")
    feed = ChangeFeed(
        table.snapshot,
        table.catalog.config,
        columns=_feed_columns(table) if columns is None else columns,
        predicate=predicate,
        cancel_out=False,
        in_file_order=True,
    )
    first, last = _version_range(
        table, starting_version or 0, ending_version, begins, allow_out_of_range
    )
    if begins is not None:
        first = max(first, _version_at(table, begins - 1) + 1)
    if ends is not None:
        last = min(last, _version_at(table, ends))
    versions = list(feed.log.metadata_between(first, last))
    _check_enabled(table, versions, first, last)
    schema = _feed_schema(table, feed.schema, versions)

    def batches() -> Iterator[pa.RecordBatch]:
        if first > last:
            return
        # lazy import: loads pyarrow.compute
        from deltasql.engine.parquet.arrow_casts import cast_rows

        with open_engine(table.catalog.config) as engine:
            for batch in feed.between(engine, first, last):
                yield from cast_rows(pa.Table.from_batches([batch]), schema).to_batches()

    return RecordBatchReader.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))


def _feed_columns(table: OpenTable) -> list[str]:
    """List all columns in the order of deltalake's feed: partition columns after the others."""
    partitioned = table.snapshot.partition_columns
    data = [name for name in table.snapshot.schema.names if name not in partitioned]
    return [*data, *partitioned, *_OWN_TYPES]


def _feed_schema(
    table: OpenTable, chosen: pa.Schema, versions: Sequence[tuple[int, Metadata]]
) -> pa.Schema:
    """Return the schema of the feed.

    A column is NOT NULL only if every version in the range declares it as the table does now.
    """
    declared = table.snapshot.schema
    known = [schema_of(metadata.schema_string) for _, metadata in versions]
    whole = schema_to_arrow(declared)
    fields = []
    for field in chosen:
        found = declared.find(field.name)
        is_same = found is not None and all(found == each.find(field.name) for each in known)
        fields.append(_with_deltalake_type(whole.field(field.name) if is_same else field))
    return pa.schema(fields)


def _version_range(
    table: OpenTable,
    starting: int,
    ending: int | None,
    begins: int | None,
    allow_out_of_range: bool,
) -> tuple[int, int]:
    newest = table.snapshot_at()
    head = newest.version
    last = head if ending is None else min(ending, head)
    if starting > head and not allow_out_of_range:
        raise VersionNotFoundError(
            f"External error: Invalid table version: {starting}",
            table=table.name,
            version=starting,
            latest=head,
        )
    if starting > last and starting <= head:
        raise VersionNotFoundError(
            f"External error: Invalid version. Start version {starting} is greater than "
            f"end version {last}",
            table=table.name,
            version=starting,
        )
    late = begins is not None and begins > newest.committed_at_ms
    if late and not allow_out_of_range:
        raise VersionNotFoundError(
            f"External error: End timestamp {from_ms(now_ms())} is greater than "
            "latest commit timestamp",
            table=table.name,
            latest=head,
        )
    return starting, last


def _version_at(table: OpenTable, at_ms: int) -> int:
    """Return the version at a timestamp; -1 before the first commit."""
    store, table_id = table.catalog.store, table.row.table_id
    rows = store.query("head_at_time", table_id=table_id, timestamp_ms=at_ms)
    return int(rows[0][1]) if rows else -1


def _check_enabled(
    table: OpenTable, versions: Sequence[tuple[int, Metadata]], first: int, last: int
) -> None:
    for version, metadata in versions:
        if metadata.configuration.get(_ENABLED, "").lower() == "true":
            continue
        reason = (
            f"Reading a table version: {version} that does not have change data enabled"
            if version == first
            else f"Change Data not enabled for version: {version}, Start: {first}, End: {last}"
        )
        raise VersionNotFoundError(
            f"External error: {reason}",
            table=table.name,
            version=version,
            help="changes() also returns the changes of versions without change data.",
        )


def _milliseconds(text: str | None) -> int | None:
    """Parse an RFC 3339 timestamp with a time zone; return milliseconds."""
    # Here, and nowhere else, deltalake accepts a UTC offset without a colon.
    return None if text is None else to_ms(parse_rfc3339(_OFFSET.sub(r"\1:\2", text)))


def _with_deltalake_type(field: pa.Field) -> pa.Field:
    own = _OWN_TYPES.get(field.name)
    return field.with_type(own or _VIEWS.get(field.type, field.type))
