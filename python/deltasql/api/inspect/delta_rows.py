"""The rows of DESCRIBE HISTORY and DESCRIBE DETAIL, with the columns of delta-spark."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from deltasql.model.clock import from_ms
from deltasql.model.protocol import reader_features, writer_features
from deltasql.operations.alter.cluster_by import clustering_columns

if TYPE_CHECKING:
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import VersionRow

_DELTA_SPARK_METRICS = {"numFilesAdded": "numAddedFiles", "numFilesRemoved": "numRemovedFiles"}


def detail_row(snapshot: Snapshot, location: str) -> tuple[Any, ...]:
    """Return the location, the metadata, the size and the protocol of a table."""
    metadata, protocol, totals = snapshot.metadata, snapshot.protocol, snapshot.totals()
    return (
        "delta",
        metadata.id,
        snapshot.table.full_name,
        metadata.description,
        location,
        from_ms(
            snapshot.table.created_at_ms if metadata.created_time is None else metadata.created_time
        ),
        snapshot.committed_at,
        list(metadata.partition_columns),
        clustering_columns(snapshot),
        totals.num_files,
        totals.size_bytes,
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(reader_features(protocol) | writer_features(protocol)),
    )


def metric_name(name: str) -> str:
    """Return the name of a metric in delta-spark.

    >>> metric_name("num_target_rows_inserted"), metric_name("numOutputRows")
    ('numTargetRowsInserted', 'numOutputRows')
    """
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def history_row(row: VersionRow) -> tuple[Any, ...]:
    """Return a commit as a row of DESCRIBE HISTORY; metrics have the names of delta-spark."""
    info = row.info
    return (
        row.version,
        from_ms(row.committed_at_ms),
        info.extra.get("userId"),
        info.extra.get("userName"),
        info.operation,
        _texts(_parameters(dict(info.operation_parameters or {}))),
        None,
        None,
        None,
        info.read_version,
        info.isolation_level,
        info.is_blind_append,
        _texts(_metrics(dict(info.operation_metrics or {}))),
        info.user_metadata or info.extra.get("userMetadata"),
        info.engine_info,
    )


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Add delta-spark's `predicate` to the parameters of a merge, which have `mergePredicate`."""
    if "mergePredicate" in given:
        return {**given, "predicate": json.dumps([given["mergePredicate"]])}
    return given


def _metrics(given: dict[str, Any]) -> dict[str, Any]:
    found = {metric_name(name): value for name, value in given.items()}
    for name, other in _DELTA_SPARK_METRICS.items():
        if name in found:
            found[other] = found[name]
    for name, side in (("filesAdded", "Added"), ("filesRemoved", "Removed")):
        sizes = found.get(name)
        if isinstance(sizes, str) and sizes.startswith("{"):
            found[f"num{side}Bytes"] = json.loads(sizes)["totalSize"]
    return found


def _texts(values: dict[str, Any]) -> dict[str, str | None]:
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
