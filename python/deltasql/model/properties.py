"""Table properties: the known `delta.*` keys, their types and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from deltasql.exceptions import TxnLogConfigError
from deltasql.model.protocol import (
    CONSTRAINT_PREFIX,
    FEATURE_PREFIX,
    FEATURES,
    PROTECTED_BEFORE,
)
from deltasql.model.schema.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.model.actions import SetTransaction

NAME_IN_CATALOG = "deltasql.tableName"
"""The property with a table's name in the catalog, if the table's folder has a different name."""
IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
T = TypeVar("T")

_UNIT = r"(week|day|hour|minute|second|millisecond|microsecond)s?"
_INTERVAL = re.compile(rf"(?:interval\s+)?((?:\d+\s+{_UNIT}\s*)+)", re.IGNORECASE)
_SIZE = re.compile(r"\d+\s*([kmgt]?b?)", re.IGNORECASE)


def parse_interval(text: str) -> timedelta:
    """Parse an interval such as `interval 7 days`. Months and years are not allowed.

    >>> parse_interval("interval 1 week 12 hours")
    datetime.timedelta(days=7, seconds=43200)
    """
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        raise ValueError("an interval such as 'interval 7 days'")
    parts: dict[str, int] = {}
    for amount, unit in re.findall(rf"(\d+)\s+{_UNIT}", match[1], re.IGNORECASE):
        parts[f"{unit.lower()}s"] = parts.get(f"{unit.lower()}s", 0) + int(amount)
    return timedelta(**parts)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def _integer(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text.strip()) or int(text) < least:
            raise ValueError(f"a whole number, at least {least}")
        return int(text)

    return parse


def _one_of(*allowed: str) -> Callable[[str], str]:
    by_folded = {name.casefold(): name for name in allowed}

    def parse(text: str) -> str:
        if text.strip().casefold() not in by_folded:
            raise ValueError("one of " + ", ".join(allowed))
        return by_folded[text.strip().casefold()]

    return parse


def _size(text: str) -> str:
    if not _SIZE.fullmatch(text.strip()):
        raise ValueError("a size such as 134217728 or 128mb")
    return text.strip()


def _parquet_version(text: str) -> str:
    if not re.fullmatch(r"1\.0\.0|2\.\d+\.\d+", text.strip()):
        raise ValueError("1.0.0 or 2.x.y")
    return text.strip()


_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli")
KNOWN: Mapping[str, Callable[[str], object]] = {
    "delta.appendOnly": _boolean,
    "delta.autoOptimize": _boolean,
    "delta.autoOptimize.autoCompact": _one_of("true", "false", "auto"),
    "delta.autoOptimize.optimizeWrite": _boolean,
    "delta.checkpoint.writeStatsAsJson": _boolean,
    "delta.checkpoint.writeStatsAsStruct": _boolean,
    "delta.checkpointInterval": _integer(1),
    "delta.checkpointPolicy": _one_of("classic", "v2"),
    "delta.columnMapping.maxColumnId": _integer(0),
    "delta.columnMapping.mode": _one_of("none", "name", "id"),
    "delta.compatibility.symlinkFormatManifest.enabled": _boolean,
    "delta.dataSkippingNumIndexedCols": _integer(-1),
    "delta.dataSkippingStatsColumns": str,
    "delta.deletedFileRetentionDuration": parse_interval,
    "delta.enableChangeDataFeed": _boolean,
    "delta.enableDeletionVectors": _boolean,
    "delta.enableExpiredLogCleanup": _boolean,
    "delta.enableFullRetentionRollback": _boolean,
    "delta.enableIcebergCompatV1": _boolean,
    "delta.enableIcebergCompatV2": _boolean,
    "delta.enableIcebergCompatV3": _boolean,
    "delta.enableInCommitTimestamps": _boolean,
    "delta.enableMaterializePartitionColumnsFeature": _boolean,
    "delta.enableRowTracking": _boolean,
    "delta.enableTypeWidening": _boolean,
    "delta.enableVariantShredding": _boolean,
    "delta.inCommitTimestampEnablementTimestamp": _integer(0),
    "delta.inCommitTimestampEnablementVersion": _integer(0),
    "delta.isolationLevel": _one_of("Serializable", "WriteSerializable", "SnapshotIsolation"),
    "delta.logRetentionDuration": parse_interval,
    # `raised_protocol` checks whether the versions are valid.
    "delta.minReaderVersion": str,
    "delta.minWriterVersion": str,
    "delta.parquet.compression.codec": _one_of(*_CODECS),
    "delta.parquet.format.version": _parquet_version,
    "delta.randomPrefixLength": _integer(1),
    "delta.randomizeFilePrefixes": _boolean,
    "delta.requireCheckpointProtectionBeforeVersion": _integer(0),
    "delta.rowTracking.materializedRowCommitVersionColumnName": str,
    "delta.rowTracking.materializedRowIdColumnName": str,
    "delta.rowTrackingSuspended": _boolean,
    "delta.sampleRetentionDuration": parse_interval,
    "delta.setTransactionRetentionDuration": parse_interval,
    "delta.targetFileSize": _size,
    "delta.tuneFileSizesForRewrites": _boolean,
    "delta.universalFormat.enabledFormats": str,
    "deltasql.autoCompact.minFiles": _integer(2),
}


def is_expired(txn: SetTransaction, retention: timedelta | None, now_ms: int) -> bool:
    """Return whether an application transaction is older than `retention` at `now_ms`.

    >>> from deltasql.model.actions import SetTransaction
    >>> is_expired(SetTransaction("etl", 1, last_updated=1), timedelta(milliseconds=5), 10)
    True
    """
    if retention is None or txn.last_updated is None:
        return False
    return txn.last_updated <= now_ms - retention // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """Typed access to the properties of a table, with their defaults.

    >>> TableProperties({"delta.logRetentionDuration": "interval 2 days"}).log_retention
    datetime.timedelta(days=2)
    >>> TableProperties({}).checkpoint_interval
    10
    """

    configuration: Mapping[str, str]

    @property
    def append_only(self) -> bool:
        """Whether rows must not be changed or deleted."""
        return self._get("delta.appendOnly", False)

    @property
    def auto_compact(self) -> bool:
        """Whether `mirror run` compacts small files; False if the value is not valid."""
        text = self.configuration.get("delta.autoOptimize.autoCompact", "")
        return text.strip().lower() in ("true", "auto")

    @property
    def auto_compact_min_files(self) -> int:
        """How many small files of a partition auto compaction waits for."""
        return self._get("deltasql.autoCompact.minFiles", 50)

    @property
    def checkpoint_interval(self) -> int:
        """The number of commits between two checkpoints."""
        return self._get("delta.checkpointInterval", 10)

    @property
    def change_data_feed(self) -> bool:
        """Whether commits record their changed rows."""
        return self._get("delta.enableChangeDataFeed", False)

    @property
    def compression_codec(self) -> str | None:
        """The Parquet compression codec of the table; None if it is not set."""
        return self._get("delta.parquet.compression.codec", cast("str | None", None))

    @property
    def constraints(self) -> dict[str, str]:
        """CHECK constraints: name to SQL expression."""
        return {
            key.removeprefix(CONSTRAINT_PREFIX): value
            for key, value in self.configuration.items()
            if key.startswith(CONSTRAINT_PREFIX)
        }

    @property
    def deleted_file_retention(self) -> timedelta:
        """How long vacuum retains a removed data file, for readers of older versions."""
        return self._get("delta.deletedFileRetentionDuration", timedelta(days=7))

    @property
    def deletion_vectors(self) -> bool:
        """Whether a writer may use deletion vectors instead of rewriting files."""
        return self._get("delta.enableDeletionVectors", False)

    @property
    def expired_log_cleanup(self) -> bool:
        """Whether log files older than the retention may be deleted."""
        return self._get("delta.enableExpiredLogCleanup", True)

    @property
    def in_commit_timestamps(self) -> bool:
        """Whether the timestamp of a commit is in its commitInfo."""
        return self._get("delta.enableInCommitTimestamps", False)

    @property
    def isolation_level(self) -> IsolationLevel | None:
        """The isolation level of commits; None if it is not set."""
        return cast("IsolationLevel | None", self._get("delta.isolationLevel", None))

    @property
    def log_retention(self) -> timedelta:
        """How long the history of the table is retained."""
        return self._get("delta.logRetentionDuration", timedelta(days=30))

    @property
    def num_indexed_cols(self) -> int:
        """How many leading columns get statistics; -1 means all."""
        return self._get("delta.dataSkippingNumIndexedCols", 32)

    @property
    def protected_before(self) -> int:
        """The log before this version is cleaned up as a whole or not at all."""
        return self._get(PROTECTED_BEFORE, 0)

    @property
    def set_transaction_retention(self) -> timedelta | None:
        """How long the transaction version of an application is retained; None means forever."""
        return self._get("delta.setTransactionRetentionDuration", cast("timedelta | None", None))

    @property
    def stats_as_json(self) -> bool:
        """Whether checkpoints contain statistics as JSON."""
        return self._get("delta.checkpoint.writeStatsAsJson", True)

    @property
    def stats_as_struct(self) -> bool:
        """Whether checkpoints contain statistics as typed columns."""
        return self._get("delta.checkpoint.writeStatsAsStruct", False)

    def _get(self, key: str, default: T) -> T:
        text = self.configuration.get(key)
        return default if text is None else cast("T", _parsed(key, text))


def check_properties(configuration: Mapping[str, str]) -> None:
    """Raise TxnLogConfigError for an unknown `delta.` property or an invalid value.

    Names that do not start with `delta.` are custom properties and are not checked.

    >>> check_properties({"delta.appendOnly": "true", "owner": "ann"})
    """
    check_values(configuration)
    for key in unknown_properties(configuration):
        raise TxnLogConfigError(
            f"unknown table property {key!r}",
            key=key,
            help=f"{nearest(key, list(KNOWN))}Custom properties must not start with 'delta.'.",
        )


def check_values(configuration: Mapping[str, str]) -> None:
    """Raise TxnLogConfigError if a known property has an invalid value."""
    for key, value in configuration.items():
        if key in KNOWN:
            _parsed(key, value)
        elif key.startswith(FEATURE_PREFIX):
            _check_feature(key, value)


def unknown_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties whose names start with `delta.` but are not known.

    >>> unknown_properties({"delta.appendOnly": "true", "delta.apendOnly": "true", "owner": "ann"})
    {'delta.apendOnly': 'true'}
    """
    return {
        key: value
        for key, value in configuration.items()
        if key.lower().startswith("delta.")
        and key not in KNOWN
        and not key.startswith((FEATURE_PREFIX, CONSTRAINT_PREFIX))
    }


def stored_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties to store in the metadata: all but `delta.feature.*`.

    >>> stored_properties({"delta.feature.deletionVectors": "supported", "owner": "ann"})
    {'owner': 'ann'}
    """
    return {
        key: value for key, value in configuration.items() if not key.startswith(FEATURE_PREFIX)
    }


def _parsed(key: str, text: str) -> object:
    try:
        return KNOWN[key](text)
    except (ValueError, AttributeError, OverflowError) as error:
        # AttributeError: the value is not a str, for example an int.
        allowed = str(error) if isinstance(error, ValueError) else "text"
        raise TxnLogConfigError(
            f"table property {key!r} cannot be {text!r}",
            key=key,
            allowed=allowed,
            help=f"Set it to {allowed}.",
        ) from error


def _check_feature(key: str, value: str) -> None:
    name = key.removeprefix(FEATURE_PREFIX)
    if name not in FEATURES:
        raise TxnLogConfigError(
            f"unknown table feature {name!r}",
            key=key,
            help=f"{nearest(name, list(FEATURES))}Known features: {', '.join(sorted(FEATURES))}.",
        )
    if value not in ("supported", "enabled"):
        raise TxnLogConfigError(
            f"table property {key!r} cannot be {value!r}",
            key=key,
            allowed="supported",
            help="Set it to 'supported'.",
        )
