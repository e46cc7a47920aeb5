"""Write one version to a published log: the commit file, then its checksum and its checkpoint.

A commit file of another writer is never overwritten. Only the commit file is required: if a
checksum or a checkpoint cannot be written, the failure is logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import LogParseError, MirrorDivergedError, TxnLogMirrorError
from deltasql.mirror.checkpoint.checksum import write_checksum
from deltasql.mirror.log.cleanup import clean_log
from deltasql.mirror.log.encode import commit_file, files_named
from deltasql.mirror.log.last_checkpoint import checkpoint_file, last_checkpoint_version
from deltasql.mirror.log.same_commit import same_content
from deltasql.model.properties import TableProperties
from deltasql.phases import reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.config import Config
    from deltasql.mirror.log.encode import CommitFile
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_DELTALAKE_INTERVAL = 100  # deltalake's default number of commits between checkpoints


def put_commit(storage: Storage, table: TableRow, file: CommitFile) -> bool:
    """Create a commit file; return False if it already exists with the same content.

    Raises MirrorDivergedError if the file exists with different content. The caller must flush the
    log folder before it records the version as published.
    """
    name = commit_file(file.version)
    reached("publishing")
    is_new = storage.put_if_absent(name, file.data, flush_folder=False)
    found = file.data if is_new else storage.read(name)
    if not is_new:
        storage.flush([name])  # the other writer may not have flushed it to disk
    if is_torn(found, file.data):
        # A power loss left a file with incomplete content. It is the beginning of this commit, so
        # no commit of another writer is overwritten.
        storage.put(name, file.data)
    elif found != file.data and not _has_same_content(file.data, found):
        raise MirrorDivergedError(
            f"version {file.version} of {table.full_name}: {name} differs from the commit in the "
            "database",
            table=table.full_name,
            version=file.version,
            location=storage.location,
        )
    reached("published")
    return is_new


def is_torn(found: bytes, whole: bytes) -> bool:
    r"""Return whether a file has only the beginning of its content, perhaps padded with zeros.

    >>> [is_torn(found, b"{}") for found in (b"", b"{", b"{\0", b"\0\0", b"{}", b"[]")]
    [True, True, True, True, False, False]
    """
    return found != whole and whole.startswith(found.rstrip(b"\0"))


def _has_same_content(ours: bytes, theirs: bytes) -> bool:
    """Return whether two commit files have the same actions.

    After an import or an adoption, the log still has the file of the other writer.
    """
    try:
        return same_content(ours, theirs)
    except LogParseError:
        return False


def copy_data_files(
    store: Store, table: TableRow, source: Storage, replica: Storage, data: bytes
) -> None:
    """Copy the files that a commit adds to a replica, unless they are already there.

    Files with absolute paths are not copied, because the log of the replica refers to the same
    files. When this returns, the copies survive a power loss.
    """
    folders = set()
    for file in files_named(data):
        if file.path.startswith("/") or "://" in file.path:
            continue
        name = source.data_name(file.path)
        try:
            if not _is_complete(source, replica, name):
                replica.copy_from(source, name, flush_folder=False)
            folders.add(name.rpartition("/")[0])
        except FileNotFoundError as error:
            # A file that is not live any more may be missing, because a vacuum may have deleted it.
            if file.key is not None and _is_live(store, table, file.key):
                raise TxnLogMirrorError(
                    f"live data file {file.path} of {table.full_name} is missing",
                    table=table.full_name,
                    location=source.location,
                    help="Restore the file, or restore the table to a version without it.",
                ) from error
    for folder in sorted(folders):
        replica.flush_folder(folder)


def _is_complete(source: Storage, replica: Storage, name: str) -> bool:
    """Return whether the replica has the whole file: release 0.1.0 could leave a partial copy."""
    try:
        return replica.size(name) == source.size(name)
    except FileNotFoundError:
        return False


def _is_live(store: Store, table: TableRow, key: bytes) -> bool:
    return bool(store.query("live_by_key", table_id=table.table_id, keys=[key]))


@dataclass(frozen=True, slots=True)
class PostCommit:
    """Options of a commit for log maintenance. None means that the table properties decide."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None
    counts_commits: bool = False
    """Whether the checkpoint interval counts commits starting at one, as deltalake does."""


DEFAULT_POST_COMMIT = PostCommit()


def maintain(
    store: Store,
    table: TableRow,
    storage: Storage,
    file: CommitFile,
    *,
    config: Config,
    last: int | None = None,
    post_commit: PostCommit = DEFAULT_POST_COMMIT,
    check_hint: bool = False,
) -> bool:
    """Write the optional files of a published version; log a failure and return False.

    Readers need only the commit files, so every step here may fail and can be repeated. `last` is
    the end of a span of versions that is published together: if several checkpoints are due in the
    span, only the newest is written. `check_hint` also checks that `_last_checkpoint` names the
    newest checkpoint of earlier versions.
    """
    version = file.version
    try:
        checksum = write_checksum(
            store, table, storage, version, file.data, replaces_nothing=file.replaces_nothing
        )
        configuration = checksum.facts.configuration
        writes_checkpoint = post_commit.create_checkpoint and is_due(
            configuration, version, config, last=last, counts_commits=post_commit.counts_commits
        )
        due = version if writes_checkpoint else None
        if due is None and check_hint:  # rewriting a checkpoint also writes its hint
            due = unnamed_checkpoint(storage, version, configuration=configuration, config=config)
        if due is not None:
            # lazy import: it writes Parquet
            from deltasql.mirror.checkpoint.write import write_checkpoint

            write_checkpoint(store, table, storage, due)
        requested = post_commit.cleanup_expired_logs
        if writes_checkpoint if requested is None else requested:
            clean_log(store, table, storage, configuration, even_if_disabled=requested is True)
    except Exception as error:  # every step is optional, and the commit is ratified
        telemetry.log(
            _log,
            logging.WARNING,
            "log maintenance failed",
            table=table.full_name,
            version=version,
            error=str(error),
        )
        return False
    return True


def is_due(
    configuration: Mapping[str, str],
    version: int,
    config: Config,
    *,
    last: int | None = None,
    counts_commits: bool = False,
) -> bool:
    """Return whether a version gets a checkpoint, by the table's properties or our settings.

    With `last`, only the newest due version up to `last` gets one. Spark counts versions starting
    at zero, with a default interval of 10. deltalake counts commits starting at one, with a default
    interval of 100 (`counts_commits`). A version that dropped a feature of readers always gets one.
    """
    if version == TableProperties(configuration).protected_before > 0:
        return True
    interval, offset = _interval(configuration, config, counts_commits=counts_commits)
    if version <= 0 or (version + offset) % interval:
        return False
    return last is None or version + interval > last


def unnamed_checkpoint(
    storage: Storage, version: int, *, configuration: Mapping[str, str], config: Config
) -> int | None:
    """Return the newest checkpoint up to a version if `_last_checkpoint` names an older one.

    This happens if a process failed after writing the checkpoint and before writing the hint.
    """
    due = set()
    for counts_commits in (False, True):
        interval, offset = _interval(configuration, config, counts_commits=counts_commits)
        due.add((version + offset) // interval * interval - offset)
    named = last_checkpoint_version(storage) or 0
    for newest in sorted(due, reverse=True):
        if newest > named and storage.exists(checkpoint_file(newest)):
            return newest
    return None


def _interval(
    configuration: Mapping[str, str], config: Config, *, counts_commits: bool
) -> tuple[int, int]:
    """Return the checkpoint interval and an offset.

    A version gets a checkpoint if the sum of the version and the offset is a multiple of the
    interval.
    """
    if "delta.checkpointInterval" in configuration:
        return TableProperties(configuration).checkpoint_interval, int(counts_commits)
    is_chosen = "checkpoint_interval" in config.mirror.model_fields_set
    if counts_commits and not is_chosen:
        return _DELTALAKE_INTERVAL, 1
    return config.mirror.checkpoint_interval, 0
