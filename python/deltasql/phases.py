"""Named points on the way of a commit, at which a test can pause, fail or kill the process.

A hook observes: production code takes the same path with and without one. Not every commit passes
every point. An append of one file to a table that the process knows is one statement on PostgreSQL
(`sending`, then `ratified`) and four on SQLite (`locked`, `sending`, `committing`, `ratified`).

>>> seen = []
>>> with hooked(seen.append):
...     reached("locked")
>>> seen
['locked']
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Data files come before the commit that adopts them.
WritePhase = Literal[
    "intended",  # the database was told of files, none of them is there
    "written",  # the files of an operation are there, it is not staged
]
CommitPhase = Literal[
    "staged",  # actions are validated, the database was not touched
    "locked",  # the heads are locked
    "checked",  # conflict rules have passed
    "sending",  # from here on the database may commit without our knowing
    "inserting",  # between two tables' rows
    "committing",  # all rows are sent, COMMIT is not
    "ratified",  # COMMIT was acknowledged
    "publishing",  # one table's commit file is about to be written
    "published",  # it is written
    "recorded",  # and SQL knows it
]
# What follows a published version, now and then.
MirrorPhase = Literal[
    "copied",  # at a replica: the data files of a commit are there, its commit file is not
    "checkpointing",  # a checkpoint is about to be written
    "checkpointed",  # the checkpoint is written, `_last_checkpoint` is not
    "cleaning",  # expired log files are about to be deleted
]
# Who decides what is committed changes: SQL takes a table over, or leaves it to its log.
HandOverPhase = Literal[
    "claimed",  # the commit by which SQL takes over has its id
    "handing over",  # it is about to be put into the log
    "handed over",  # it is in the log, SQL has not yet committed it
    "taken over",  # SQL has
    "left",  # the table has left the catalog
    "giving back",  # the commit that lets writers by path in again is about to be put into the log
    "given back",  # it is in the log
]
Phase = WritePhase | CommitPhase | MirrorPhase | HandOverPhase
WRITE_PHASES: tuple[WritePhase, ...] = WritePhase.__args__  # type: ignore[attr-defined]
PHASES: tuple[CommitPhase, ...] = CommitPhase.__args__  # type: ignore[attr-defined]
MIRROR_PHASES: tuple[MirrorPhase, ...] = MirrorPhase.__args__  # type: ignore[attr-defined]
HAND_OVER_PHASES: tuple[HandOverPhase, ...] = HandOverPhase.__args__  # type: ignore[attr-defined]

_hook: Callable[[str], None] | None = None


def reached(phase: Phase) -> None:
    """Call the hook, if there is one; what the code does next never depends on it."""
    if _hook is not None:
        _hook(phase)


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """Call a function at every point that is reached while the block runs."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before
