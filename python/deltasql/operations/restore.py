"""RESTORE: create a new version with the files and metadata of an older version."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.files.file_sizes import missing_files
from deltasql.exceptions import TxnLogError, VersionNotFoundError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.actions import logical_file
from deltasql.model.clock import to_ms
from deltasql.model.counts import many
from deltasql.model.features.row_tracking import COLUMN_NAMES, ENABLED
from deltasql.model.protocol import upgraded_protocol
from deltasql.operations.alter.cluster_by import restore_clustering
from deltasql.operations.alter.fence import fenced_like
from deltasql.operations.rewrite import record_whole_files
from deltasql.operations.table_stage import add_file
from deltasql.snapshot.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.model.actions import AddFile, Metadata
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import VersionRow

# These properties describe the log or the files, not the content of the table, so a restore does
# not change them.
_OF_THE_LOG = (
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    ENABLED,
    *COLUMN_NAMES,
)


def restore(
    stage: TableStage,
    now: Snapshot,
    to: int | str | datetime,
    *,
    ignore_missing_files: bool = False,
    protocol_downgrade_allowed: bool = False,
    or_first_version: bool = False,
) -> dict[str, int]:
    """Restore a table to an older version, or as of a timestamp; return metrics.

    A timestamp before the first commit raises an error. With `or_first_version`, it selects version
    0, as in deltalake.
    """
    older, parameters = _older_snapshot(now, to, or_first_version=or_first_version)
    return _restore(
        stage,
        older,
        parameters=parameters,
        ignore_missing_files=ignore_missing_files,
        protocol_downgrade_allowed=protocol_downgrade_allowed,
    )


def undo(stage: TableStage, now: Snapshot) -> dict[str, int]:
    """Undo the latest commit by restoring the version before it; return metrics.

    Auto compactions after it are skipped: no user made them, and they change no rows.
    """
    undone, version = _last_commit(now)
    before = _at_version(now, version)
    parameters = {"version": str(undone), "restored": str(version)}
    return _restore(stage, before, parameters=parameters, operation="UNDO")


def _restore(
    stage: TableStage,
    to: Snapshot,
    *,
    parameters: Mapping[str, str],
    ignore_missing_files: bool = False,
    protocol_downgrade_allowed: bool = False,
    operation: str = "RESTORE",
) -> dict[str, int]:
    """Stage the files and the metadata of an older version; its data files must still exist."""
    assert stage.snapshot is not None
    if to.version >= stage.snapshot.version:
        raise TxnLogError(
            # This is deltalake's message, with its misspelled "less then".
            f"Version to restore {to.version} should be less then last available version "
            f"{stage.snapshot.version}.",
            prefix=GENERIC_ERROR,
            help="Choose an older version; history() lists them.",
        )
    wanted, present = to.scan().arrow, stage.files()
    restored = _without(wanted, present)
    removed = _without(present, wanted)
    if not ignore_missing_files:
        missing = missing_files(stage.location, restored, stage.config.storage)
        if missing:
            raise TxnLogError(
                # This is deltalake's message, for which existing code may look.
                f"Find missing file {missing[0]} when restore.",
                prefix=GENERIC_ERROR,
                help=f"That version lacks {many(len(missing), 'file')}, "
                "possibly deleted by VACUUM. "
                "Choose a later version, or set ignore_missing_files (--ignore-missing-files).",
            )
    stage.remove(removed)
    _bring_back(stage, [add_file(row) for row in restored.to_pylist()])
    stage.read(whole_table=True)
    metadata = _metadata(to.metadata, stage.metadata)
    base = stage.protocol
    if protocol_downgrade_allowed:
        base = fenced_like(to.protocol, stage.protocol)
    protocol = upgraded_protocol(base, to.schema, metadata.configuration)
    restore_clustering(stage, to)
    stage.change_metadata(metadata, protocol)
    for files, kind in ((removed, "delete"), (restored, "insert")):
        record_whole_files(stage, files, kind)
    metrics = {"numRemovedFile": len(removed), "numRestoredFile": len(restored)}
    stage.set_commit_info(operation, parameters, metrics)
    return metrics


def _last_commit(snapshot: Snapshot) -> tuple[int, int]:
    """Return the version of the last commit that is not an auto compaction, and the one before it.

    Raise if the table has no such commit, or no version before it.
    """
    commits = snapshot.history()
    last = next((each for each in commits if not _is_auto_compaction(each)), None)
    before = next(commits, None)
    if last is None or before is None:
        first = snapshot.version if last is None else last.version
        raise VersionNotFoundError(
            f"{snapshot.table.full_name} has no version before {first}",
            version=first - 1,
            latest=snapshot.version,
            help="The first commit of a table cannot be undone: drop the table.",
        )
    return last.version, before.version


def _is_auto_compaction(commit: VersionRow) -> bool:
    parameters = commit.info.operation_parameters or {}
    return commit.info.operation == "OPTIMIZE" and parameters.get("auto") == "true"


def _older_snapshot(
    now: Snapshot, to: int | str | datetime, *, or_first_version: bool
) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot to restore, and the operation parameters for the history."""
    is_version = isinstance(to, int) and to >= 0
    if not (is_version or isinstance(to, str | datetime)):
        raise TxnLogError(
            "Either the version or datetime should be provided for restore",
            prefix=GENERIC_ERROR,
            help="Give a version (0 or higher), a datetime, or a string such as "
            "2024-05-01T00:00:00Z.",
        )
    if isinstance(to, int):
        return _at_version(now, to), {"version": str(to)}
    timestamp = _timestamp(to)
    try:
        older = open_snapshot(now.store, now.table, now.cache, timestamp=timestamp)
    except VersionNotFoundError:  # the timestamp is before the first commit
        first = now.store.query("version_bounds", table_id=now.table.table_id)[0][0]
        if first > 0 or not or_first_version:
            raise
        older = _at_version(now, first)
    return older, {"datetime": str(to_ms(timestamp))}


def _at_version(now: Snapshot, version: int) -> Snapshot:
    return open_snapshot(now.store, now.table, now.cache, version=version)


def _timestamp(to: str | datetime) -> datetime:
    if isinstance(to, str):
        try:
            parsed = datetime.fromisoformat(to)
        except ValueError as error:
            raise ValueError(f"Failed to parse datetime string: {error}") from error
    else:
        parsed = to
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _bring_back(stage: TableStage, files: list[AddFile]) -> None:
    """Stage files again. If this transaction removed a file, only discard its remove action."""
    staged = stage.staged
    wanted = {logical_file(file) for file in files}
    undone = {logical_file(each) for each in staged.removes} & wanted
    staged.removes[:] = [each for each in staged.removes if logical_file(each) not in undone]
    stage.add(file for file in files if logical_file(file) not in undone)


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    """Return the files that are not in `others`, compared by path and deletion vector."""
    known = set(_keys(others))
    return files.filter(pa.array([key not in known for key in _keys(files)], pa.bool_()))


def _keys(files: pa.Table) -> list[tuple[str, str]]:
    paths, vectors = files["path"].to_pylist(), files["deletion_vector"].to_pylist()
    return list(zip(paths, vectors, strict=True))


def _metadata(wanted: Metadata, present: Metadata) -> Metadata:
    kept = {k: v for k, v in present.configuration.items() if k in _OF_THE_LOG}
    rest = {k: v for k, v in wanted.configuration.items() if k not in _OF_THE_LOG}
    return replace(wanted, configuration={**rest, **kept})
