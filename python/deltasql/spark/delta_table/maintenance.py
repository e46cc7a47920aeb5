"""The methods of delta-spark's DeltaTable that describe, maintain, restore or clone a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pyspark.sql.functions import lit

from deltasql.exceptions import TxnLogError, UnsupportedFeatureError
from deltasql.model.clock import from_ms
from deltasql.model.protocol import FEATURES, reader_features, writer_features
from deltasql.operations.alter.features import raise_versions
from deltasql.spark.delta_table.arguments import require
from deltasql.spark.delta_table.clone import clone_table
from deltasql.spark.delta_table.describe import detail, history
from deltasql.spark.delta_table.optimize import DeltaOptimizeBuilder
from deltasql.spark.errors import analysis_error, argument_error, spark_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.progress import OnProgress
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot

_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_MANIFEST = "symlink_format_manifest"
_RESTORED = (
    "table_size_after_restore bigint, num_of_files_after_restore bigint, "
    "num_removed_files bigint, num_restored_files bigint, "
    "removed_files_size bigint, restored_files_size bigint"
)
_HIGHEST_READER, _HIGHEST_WRITER = 3, 7


class TableCare:
    """History, details, OPTIMIZE, VACUUM, RESTORE, manifests, the protocol and clones."""

    if TYPE_CHECKING:
        _spark: SparkSession
        _catalog: Catalog
        _name: str

        def __init__(self, spark: SparkSession, catalog: Catalog, name: str) -> None: ...
        def _snapshot(self, version: int | None = None) -> Snapshot: ...
        def _commit(self, operate: Callable[[MultiTableTransaction], Any]) -> Any: ...
        def _operate(self, stage: Callable[[TableStage], Any]) -> Any: ...

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first."""
        if limit is not None and not isinstance(limit, int):
            raise TypeError(f"limit must be an int, found to be of type {type(limit)}")
        with spark_kinds():
            return history(self._spark, self._snapshot(), limit)

    def detail(self) -> DataFrame:
        """Return one row with the format, location, size, properties and protocol of the table."""
        with spark_kinds():
            return detail(self._spark, self._snapshot())

    def optimize(
        self, *, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> DeltaOptimizeBuilder:
        """Return a builder that compacts or sorts the files of the table.

        `on_progress` gets the number of finished bins and the number of all bins.
        """
        return DeltaOptimizeBuilder(self._spark, self._operate, on_progress)

    def vacuum(
        self, retentionHours: float | None = None, *, on_progress: OnProgress | None = None
    ) -> DataFrame:
        """Delete files that no version in the retention period needs, and unknown files.

        A period shorter than the table's raises an error, unless the session setting
        `spark.databricks.delta.retentionDurationCheck.enabled` is false. A table with many folders
        is listed on executors. `on_progress` gets the progress of the listing and of the deletion.
        """
        hours = None if retentionHours is None else float(retentionHours)
        check = str(self._spark.conf.get(_CHECK, "true")).lower() != "false"
        with spark_kinds():
            try:
                self._catalog.vacuum(
                    self._name,
                    retention_hours=hours,
                    dry_run=False,
                    enforce_retention_duration=check,
                    full=True,
                    engine="spark",
                    session=self._spark,
                    on_progress=on_progress,
                )
            except TxnLogError as error:
                if type(error) is not TxnLogError or not check:
                    raise
                raise argument_error(
                    "The specified VACUUM retention period is too low: " + error.message,
                    "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
                    help=f"If nobody reads or writes older versions, set {_CHECK} to false.",
                ) from error
        return self._spark.createDataFrame([], "")

    def generate(self, mode: str) -> None:
        """Write symlink manifests of the latest version, for Presto and Athena."""
        if not isinstance(mode, str) or mode.lower() != _MANIFEST:
            raise argument_error(
                f"Specified mode '{mode}' is not supported. Supported modes are: {_MANIFEST}",
                "DELTA_MODE_NOT_SUPPORTED",
                help=f"Call generate('{_MANIFEST}').",
            )
        with spark_kinds():
            self._catalog.mirror.write_manifests(self._snapshot())

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to a version; returns how many files were restored and removed."""
        require(version, int, "version", "an int")
        now = self._snapshot()
        first = min((row.version for row in now.history()), default=0)
        if not first <= version <= now.version:
            raise analysis_error(
                f"Cannot restore table to version {version}. "
                f"Available versions: [{first}, {now.version}].",
                "DELTA_CANNOT_RESTORE_TABLE_VERSION",
                help="Choose one of these; history() lists them.",
            )
        return self._restored(now, version, version)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the table to a timestamp; without a zone, it is in the session's time zone."""
        require(timestamp, str, "timestamp", "a string")
        moment = self._moment(timestamp)
        rows = list(self._snapshot().history())
        before = [row for row in rows if row.committed_at_ms <= moment.timestamp() * 1000]
        if not before:
            raise analysis_error(
                f"Cannot restore table to timestamp ({timestamp}) as it is before the earliest "
                "version available. Please use a timestamp after "
                f"({from_ms(rows[-1].committed_at_ms)}).",
                "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
                help="history() lists when each version was committed.",
            )
        if before[0].version == rows[0].version and moment > self._snapshot().committed_at:
            raise analysis_error(
                f"Cannot restore table to timestamp ({timestamp}) as it is after the latest "
                "version available. Please use a timestamp before "
                f"({from_ms(rows[0].committed_at_ms)}).",
                "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
                help="history() lists when each version was committed.",
            )
        return self._restored(self._snapshot(), before[0].version, moment)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the protocol versions; they are never lowered."""
        require(readerVersion, int, "The readerVersion", "an integer")
        require(writerVersion, int, "The writerVersion", "an integer")
        for name, given, highest in (
            ("minReaderVersion", readerVersion, _HIGHEST_READER),
            ("minWriterVersion", writerVersion, _HIGHEST_WRITER),
        ):
            if not 1 <= given <= highest:
                raise argument_error(
                    f"requirement failed: delta.{name} needs to be one of 1 to {highest}.",
                    "DELTA_INVALID_PROTOCOL_VERSION",
                    help="Choose versions of Delta's protocol.",
                )
        properties = {
            "delta.minReaderVersion": str(readerVersion),
            "delta.minWriterVersion": str(writerVersion),
        }
        self._commit(lambda tx: raise_versions(tx.target(self._name), properties))

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the table's protocol, and raise the protocol versions if needed."""
        require(featureName, str, "featureName", "a string")
        if featureName not in FEATURES:
            raise UnsupportedFeatureError(
                f"[DELTA_UNSUPPORTED_FEATURES_IN_CONFIG] {featureName} is not a table feature that "
                "is known here",
                features=(featureName,),
                help=f"Known features are {', '.join(sorted(FEATURES))}.",
            )
        self._commit(
            lambda tx: tx.add_feature(
                self._name, featureName, allow_protocol_versions_increase=True
            )
        )

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Raise an error: a feature cannot be dropped, since older versions still need it."""
        require(featureName, str, "featureName", "a string")
        if truncateHistory is not None:
            require(truncateHistory, bool, "truncateHistory", "a boolean")
        if featureName not in FEATURES:
            problem = "UNSUPPORTED_CLIENT_FEATURE] Cannot drop {}: it is not known here"
            advice = f"Known features are {', '.join(sorted(FEATURES))}."
        elif featureName not in _features(self._snapshot()):
            problem = "FEATURE_NOT_PRESENT] Cannot drop {}: the table's protocol does not have it"
            advice = "detail() lists the features of the table."
        else:
            problem = "NONREMOVABLE_FEATURE] Cannot drop {}: features stay with a table"
            advice = "Copy the rows into a new table without the feature."
        raise UnsupportedFeatureError(
            f"[DELTA_FEATURE_DROP_{problem.format(featureName)}",
            table=self._name,
            features=(featureName,),
            help=advice,
        )

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Clone the latest version to another table; a shallow clone shares the files."""
        return self._cloned(self._snapshot(), target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Clone the table at a version."""
        require(version, int, "version", "an int")
        with spark_kinds():
            older = self._snapshot(version)
        return self._cloned(older, target, isShallow, replace, properties)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Clone the table as of a timestamp."""
        require(timestamp, str, "timestamp", "a string")
        moment = self._moment(timestamp)
        with spark_kinds():
            older = self._catalog.table(self._name).snapshot(timestamp=moment)
        return self._cloned(older, target, isShallow, replace, properties)

    def _cloned(
        self,
        snapshot: Snapshot,
        target: str,
        shallow: bool,
        replaces: bool,
        properties: Mapping[str, str] | None,
    ) -> Self:
        require(target, str, "target", "a string")
        require(shallow, bool, "isShallow", "a boolean")
        require(replaces, bool, "replace", "a boolean")
        given = {} if properties is None else properties
        require(given, dict, "properties", "a dict")
        with spark_kinds():
            catalog, name = clone_table(
                self._spark,
                snapshot,
                target,
                shallow=shallow,
                replaces=replaces,
                properties=given,
            )
        return type(self)(self._spark, catalog, name)

    def _restored(self, now: Snapshot, version: int, to: int | datetime) -> DataFrame:
        if version != now.version:
            with spark_kinds():
                self._commit(lambda tx: tx.restore(self._name, to))
        sizes = [_sizes(each) for each in (now, self._snapshot())]
        gone = [size for path, size in sizes[0].items() if path not in sizes[1]]
        back = [size for path, size in sizes[1].items() if path not in sizes[0]]
        row = (sum(sizes[1].values()), len(sizes[1]), len(gone), len(back), sum(gone), sum(back))
        return self._spark.createDataFrame([row], _RESTORED)

    def _moment(self, text: str) -> datetime:
        try:
            found = datetime.fromisoformat(text.strip())
        except ValueError as error:
            # Spark accepts more timestamp formats than Python.
            seconds = self._spark.range(1).select(lit(text).try_cast("timestamp").cast("double"))
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
        zone = str(self._spark.conf.get("spark.sql.session.timeZone") or "UTC")
        return found.replace(tzinfo=UTC if zone in ("UTC", "Etc/UTC", "Z") else ZoneInfo(zone))


def _features(snapshot: Snapshot) -> frozenset[str]:
    return reader_features(snapshot.protocol) | writer_features(snapshot.protocol)


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    files = snapshot.file_paths()
    return dict(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True))
