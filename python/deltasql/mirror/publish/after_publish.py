"""Write the optional files of a log after a version is published, and clean up the log.

The optional files are the checksum and, if one is due, the checkpoint.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.mirror.checkpoint.checksum import write_checksum
from deltasql.mirror.log.cleanup import clean_log
from deltasql.mirror.log.last_checkpoint import checkpoint_file, last_checkpoint_version
from deltasql.model.properties import TableProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.config import Config
    from deltasql.mirror.log.encode import CommitFile
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_DELTALAKE_INTERVAL = 100  # deltalake's default number of commits between checkpoints


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
    interval of 100 (`counts_commits`).
    """
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
    """Return the checkpoint interval, and the number to add to a version before the division."""
    if "delta.checkpointInterval" in configuration:
        return TableProperties(configuration).checkpoint_interval, int(counts_commits)
    is_chosen = "checkpoint_interval" in config.mirror.model_fields_set
    if counts_commits and not is_chosen:
        return _DELTALAKE_INTERVAL, 1
    return config.mirror.checkpoint_interval, 0
