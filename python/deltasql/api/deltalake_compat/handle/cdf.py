"""`load_cdf`: the change data feed of a table, in deltalake's format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from arro3.core import RecordBatchReader

from deltasql.api.deltalake_compat.handle.arguments import check_flags, check_list, check_unsigned
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.engine.base import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogError, VersionNotFoundError
from deltasql.model.clock import from_ms, now_ms, parse_rfc3339, to_ms
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.operations.changes.feed import ChangeFeed

_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")
_ENABLED = "delta.enableChangeDataFeed"
_VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
_OWN_TYPES = {
    CHANGE_TYPE: pa.string_view(),
    COMMIT_VERSION: pa.uint64(),
    COMMIT_TIMESTAMP: pa.timestamp("ms"),
}


class CdfSide(RawBase):
    """The methods of the raw table that read changes."""

    def load_cdf(
        self,
        columns: list[str] | None = None,
        predicate: str | None = None,
        starting_version: int | None = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        allow_out_of_range: bool = False,
    ) -> RecordBatchReader:
        """Stream the change data of versions; the first and the last are included.

        If both versions and timestamps are given, both limit the result.
        """
        from deltasql.operations.changes.feed import ChangeFeed  # late: it parses SQL

        check_unsigned(starting_version, ending_version)
        check_list(columns)
        check_flags(allow_out_of_range)
        begins, ends = _moment(starting_timestamp), _moment(ending_timestamp)
        if starting_version is None and begins is None:
            raise TxnLogError("External error: No starting version or timestamp provided for CDC")
        feed = ChangeFeed(
            self.snapshot,
            self.catalog.config,
            columns=self._feed_columns() if columns is None else columns,
            predicate=predicate,
            cancel_out=False,
            in_file_order=True,
        )
        first, last = self._span(starting_version or 0, ending_version, begins, allow_out_of_range)
        if begins is not None:
            first = max(first, self._version_at(begins - 1) + 1)
        if ends is not None:
            last = min(last, self._version_at(ends))
        self._check_enabled(feed, first, last)
        schema = self._feed_schema(feed, first, last)

        def batches() -> Iterator[pa.RecordBatch]:
            if first > last:
                return
            from deltasql.engine.parquet.arrow_casts import (
                cast_rows,  # late: it imports pyarrow.compute
            )

            with open_engine(self.catalog.config) as engine:
                for batch in feed.between(engine, first, last):
                    yield from cast_rows(pa.Table.from_batches([batch]), schema).to_batches()

        return RecordBatchReader.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))

    def changes(
        self,
        from_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows that versions inserted and deleted, with or without change data feed."""
        from deltasql.api.changes import changes  # late: it reads rows

        return changes(
            self.catalog, self.row, from_version, to_version, columns=columns, predicate=predicate
        )

    def _feed_columns(self) -> list[str]:
        """List all columns in the order of deltalake's feed: partition columns after the others."""
        partitioned = self.snapshot.partition_columns
        data = [name for name in self.snapshot.schema.names if name not in partitioned]
        return [*data, *partitioned, *_OWN_TYPES]

    def _feed_schema(self, feed: ChangeFeed, first: int, last: int) -> pa.Schema:
        """Return the schema of the feed.

        A column is NOT NULL only if all versions declare it in the same way as the table does now.
        """
        declared = self.snapshot.schema
        versions = feed.log.metadata_between(first, last)
        known = [schema_of(metadata.schema_string) for _, metadata in versions]
        whole = schema_to_arrow(declared)
        fields = []
        for field in feed.schema:
            found = declared.find(field.name)
            held = found is not None and all(found == each.find(field.name) for each in known)
            fields.append(_as_stock(whole.field(field.name) if held else field))
        return pa.schema(fields)

    def _span(
        self, starting: int, ending: int | None, begins: int | None, allow_out_of_range: bool
    ) -> tuple[int, int]:
        newest = self._open()
        head = newest.version
        last = head if ending is None else min(ending, head)
        if starting > head and not allow_out_of_range:
            raise VersionNotFoundError(
                f"External error: Invalid table version: {starting}",
                table=self.name,
                version=starting,
                latest=head,
            )
        if starting > last and starting <= head:
            raise VersionNotFoundError(
                f"External error: Invalid version. Start version {starting} is greater than "
                f"end version {last}",
                table=self.name,
                version=starting,
            )
        late = begins is not None and begins > newest.committed_at_ms
        if late and not allow_out_of_range:
            raise VersionNotFoundError(
                f"External error: End timestamp {from_ms(now_ms())} is greater than "
                "latest commit timestamp",
                table=self.name,
                latest=head,
            )
        return starting, last

    def _version_at(self, at_ms: int) -> int:
        """Return the version at a timestamp; -1 before the first commit."""
        store, table_id = self.catalog.store, self.row.table_id
        rows = store.query("head_at_time", table_id=table_id, timestamp_ms=at_ms)
        return int(rows[0][1]) if rows else -1

    def _check_enabled(self, feed: ChangeFeed, first: int, last: int) -> None:
        for version, metadata in feed.log.metadata_between(first, last):
            if metadata.configuration.get(_ENABLED, "").lower() == "true":
                continue
            told = (
                f"Reading a table version: {version} that does not have change data enabled"
                if version == first
                else f"Change Data not enabled for version: {version}, Start: {first}, End: {last}"
            )
            raise VersionNotFoundError(
                f"External error: {told}",
                table=self.name,
                version=version,
                help="changes() tells what a version changed without it.",
            )


def _moment(text: str | None) -> int | None:
    """Parse an RFC 3339 timestamp with a time zone; return milliseconds."""
    # Only here, deltalake accepts a UTC offset without a colon.
    return None if text is None else to_ms(parse_rfc3339(_OFFSET.sub(r"\1:\2", text)))


def _as_stock(field: pa.Field) -> pa.Field:
    own = _OWN_TYPES.get(field.name)
    return field.with_type(own or _VIEWS.get(field.type, field.type))
