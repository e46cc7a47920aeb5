"""Decide which versions get a checkpoint; `write` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.mirror.log.last_checkpoint import last_checkpoint_version
from deltasql.model.properties import TableProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.config import Config
    from deltasql.storage import Storage

_DELTALAKE_INTERVAL = 100  # deltalake's default number of commits between checkpoints


def checkpoint_file(version: int) -> str:
    """Return the name of a classic checkpoint.

    >>> checkpoint_file(10)
    '_delta_log/00000000000000000010.checkpoint.parquet'
    """
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def is_due(
    configuration: Mapping[str, str],
    version: int,
    config: Config,
    *,
    last: int | None = None,
    counts_commits: bool = False,
) -> bool:
    """Return whether a version gets a checkpoint, by the table's properties or our settings.

    With `last`, only the newest due version up to that one does. Spark counts versions from zero,
    with a default interval of 10; deltalake counts commits from one, with a default of 100
    (`counts_commits`).
    """
    interval, offset = _interval(configuration, config, counts_commits=counts_commits)
    if version <= 0 or (version + offset) % interval:
        return False
    return last is None or version + interval > last


def unnamed_checkpoint(
    storage: Storage, version: int, *, configuration: Mapping[str, str], config: Config
) -> int | None:
    """Return the newest checkpoint up to a version if `_last_checkpoint` names an older one.

    Its writer failed between the checkpoint and the hint.
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
    """Return the checkpoint interval, and what to add to a version before counting."""
    if "delta.checkpointInterval" in configuration:
        return TableProperties(configuration).checkpoint_interval, int(counts_commits)
    is_chosen = "checkpoint_interval" in config.mirror.model_fields_set
    if counts_commits and not is_chosen:
        return _DELTALAKE_INTERVAL, 1
    return config.mirror.checkpoint_interval, 0
