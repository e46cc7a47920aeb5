"""Which versions get a checkpoint, and what its file is called; `checkpoint` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.mirror.log.last_checkpoint import last_checkpoint_version
from deltasql.model.properties import TableProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.config import Config
    from deltasql.storage import Storage

_COMMITS = 100  # from checkpoint to checkpoint, where deltalake would write them


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
    """Tell whether a version is one that gets a checkpoint, by the table's properties or ours.

    With `last`, only the newest such version up to that one does. Spark counts versions, from
    zero, and by ten; deltalake counts commits, from one, and by a hundred.
    """
    interval, ahead = _interval(configuration, config, counts_commits=counts_commits)
    if version <= 0 or (version + ahead) % interval:
        return False
    return last is None or version + interval > last


def unnamed_checkpoint(
    storage: Storage, version: int, *, configuration: Mapping[str, str], config: Config
) -> int | None:
    """Return the newest checkpoint up to a version, if `_last_checkpoint` names none so new.

    Somebody wrote that checkpoint, and failed before the hint.
    """
    due = set()
    for counts_commits in (False, True):
        interval, ahead = _interval(configuration, config, counts_commits=counts_commits)
        due.add((version + ahead) // interval * interval - ahead)
    named = last_checkpoint_version(storage) or 0
    for newest in sorted(due, reverse=True):
        if newest > named and storage.exists(checkpoint_file(newest)):
            return newest
    return None


def _interval(
    configuration: Mapping[str, str], config: Config, *, counts_commits: bool
) -> tuple[int, int]:
    """Return how far apart checkpoints are, and how far a version is behind what is counted."""
    if "delta.checkpointInterval" in configuration:
        return TableProperties(configuration).checkpoint_interval, int(counts_commits)
    is_chosen = "checkpoint_interval" in config.mirror.model_fields_set
    if counts_commits and not is_chosen:
        return _COMMITS, 1
    return config.mirror.checkpoint_interval, 0
