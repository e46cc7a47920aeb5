"""Requests about the change feed of a table: the versions of a range, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.schema import plain_field
from deltasql.exceptions import VersionNotFoundError
from deltasql.model.schema.schema import StructType
from deltasql.operations.changes.feed import FEED_FIELDS
from deltasql.operations.changes.log import ChangeLog
from deltasql.serve.names import snapshot_of, table_name
from deltasql.serve.read.changed_files import feed_files
from deltasql.serve.tables import reject_types_that_spark_lacks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.snapshot.snapshot import Snapshot


def found(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first and the last version of a range, and the columns of the change feed."""
    head = snapshot_of(catalog, {"namespace": body["namespace"], "name": body["name"]})
    log = ChangeLog(catalog.store, head.table, catalog.config.storage)
    low, _ = log.bounds()
    first = _first(catalog, body, head, low)
    last = _last(catalog, body, head)
    if first is not None:
        log.require_start(first)
    if first is not None and first > head.version + 1:
        raise VersionNotFoundError(
            f"{head.table.full_name} has no version {first} yet: the latest is {head.version}",
            table=head.table.full_name,
            version=first,
            latest=head.version,
        )
    snapshot = catalog.table(table_name(body)).snapshot(last)
    reject_types_that_spark_lacks(snapshot.schema)
    # All columns are nullable, because earlier versions may have rows without values.
    fields = [plain_field(each, None) for each in snapshot.schema.fields]
    return {
        "id": snapshot.table.table_uuid,
        "first": first,
        "version": snapshot.version,
        "schema": StructType((*fields, *FEED_FIELDS)).to_json(),
    }


def files(catalog: Catalog, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the files of the changes from version `first` to `version`, both included."""
    snapshot = snapshot_of(catalog, body)
    log = ChangeLog(catalog.store, snapshot.table, catalog.config.storage)
    versions = list(log.versions(int(body["first"]), snapshot.version))
    log.require(versions, snapshot.version)
    return feed_files(catalog, snapshot, versions, cancel_out=bool(body.get("cancel_out", True)))


def _first(catalog: Catalog, body: Mapping[str, Any], head: Snapshot, low: int) -> int | None:
    """Return the first version of the range; None if the range has no start."""
    skipped = 0 if body.get("includes_start", True) else 1
    if body.get("starting_version") is not None:
        return int(body["starting_version"]) + skipped
    if body.get("starting_timestamp_us") is None:
        return None
    # Find the last version before the timestamp, or at it if the start is excluded. The range
    # begins with the next version. Commit timestamps are in milliseconds.
    before_ms = (int(body["starting_timestamp_us"]) - 1 + skipped) // 1000
    rows = catalog.store.query("head_at_time", table_id=head.table.table_id, timestamp_ms=before_ms)
    return int(rows[0][1]) + 1 if rows else low


def _last(catalog: Catalog, body: Mapping[str, Any], head: Snapshot) -> int:
    """Return the last version of the range, by default the latest."""
    skipped = 0 if body.get("includes_end", True) else 1
    if body.get("ending_version") is not None:
        return min(int(body["ending_version"]) - skipped, head.version)
    if body.get("ending_timestamp_us") is None:
        return head.version
    until_ms = (int(body["ending_timestamp_us"]) - skipped) // 1000
    rows = catalog.store.query("head_at_time", table_id=head.table.table_id, timestamp_ms=until_ms)
    if not rows:
        raise VersionNotFoundError(
            f"{head.table.full_name} has no version that was committed before the end of the range",
            table=head.table.full_name,
            latest=head.version,
        )
    return int(rows[0][1])
