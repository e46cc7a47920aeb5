"""RESTORE: the version to restore, the result, and timestamps in the formats that Spark accepts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pyspark.sql.functions import lit

from deltasql.exceptions import VersionNotFoundError
from deltasql.spark.exceptions import analysis_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.snapshot.snapshot import Snapshot

RESTORED = (
    "table_size_after_restore bigint, num_of_files_after_restore bigint, "
    "num_removed_files bigint, num_restored_files bigint, "
    "removed_files_size bigint, restored_files_size bigint"
)
"""The columns of the result of a restore."""


def check_version(latest: Snapshot, version: int) -> None:
    """Raise delta-spark's error if a table cannot be restored to a version."""
    first = _first_version(latest)
    if not first <= version <= latest.version:
        raise analysis_error(
            f"Cannot restore table to version {version}. "
            f"Available versions: [{first}, {latest.version}].",
            "DELTA_CANNOT_RESTORE_TABLE_VERSION",
            help="Choose one of these; history() lists them.",
        )


def version_at(table: CatalogTable, latest: Snapshot, text: str, timestamp: datetime) -> int:
    """Return the version at a timestamp; raise delta-spark's error if there is none."""
    if timestamp > latest.committed_at:
        raise analysis_error(
            f"Cannot restore table to timestamp ({text}) as it is after the latest "
            f"version available. Please use a timestamp before ({latest.committed_at}).",
            "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
            help="history() lists when each version was committed.",
        )
    try:
        return table.snapshot(timestamp=timestamp).version
    except VersionNotFoundError as error:
        first = table.snapshot(_first_version(latest))
        raise analysis_error(
            f"Cannot restore table to timestamp ({text}) as it is before the earliest "
            f"version available. Please use a timestamp after ({first.committed_at}).",
            "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
            help="history() lists when each version was committed.",
        ) from error


def restored_files(before: Snapshot, after: Snapshot) -> tuple[int, ...]:
    """Return the counts and sizes of files in the order of `RESTORED`."""
    old, new = _sizes(before), _sizes(after)
    removed = [size for path, size in old.items() if path not in new]
    restored = [size for path, size in new.items() if path not in old]
    counts = (len(new), len(removed), len(restored))
    return (sum(new.values()), *counts, sum(removed), sum(restored))


def parse_timestamp(spark: SparkSession, text: str) -> datetime:
    """Parse a timestamp; without a zone, it is in the session's time zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        # Spark accepts more timestamp formats than Python.
        seconds = spark.range(1).select(lit(text).try_cast("timestamp").cast("double"))
        known = seconds.collect()[0][0]
        if known is not None:
            return datetime.fromtimestamp(known, UTC)
        raise analysis_error(
            f"The provided timestamp ('{text}') cannot be converted to a valid timestamp.",
            "DELTA_TIMESTAMP_INVALID",
            help="Write it as 2024-05-01 or 2024-05-01 12:30:00.",
        ) from error
    if found.tzinfo is not None:
        return found
    zone = str(spark.conf.get("spark.sql.session.timeZone") or "UTC")
    return found.replace(tzinfo=UTC if zone in ("UTC", "Etc/UTC", "Z") else ZoneInfo(zone))


def _first_version(snapshot: Snapshot) -> int:
    return int(snapshot.store.query("version_bounds", table_id=snapshot.table.table_id)[0][0])


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    files = snapshot.file_paths()
    return dict(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True))
