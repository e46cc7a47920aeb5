"""Named points of a commit, at which a test can pause, fail or kill the process.

A hook does not change what the code does. Not every commit reaches every point. For example, an
append of one file to a table that this process has used before is one statement on PostgreSQL,
which only reaches `sending` and `ratified`. On SQLite, it reaches `locked`, `sending`, `committing`
and `ratified`.

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

# Data files are written before the commit that adds them.
WritePhase = Literal[
    "intended",  # the intents are recorded, no file is written yet
    "written",  # the files of an operation are written, but not staged
]
CommitPhase = Literal[
    "staged",  # actions are validated, the database is not changed yet
    "locked",  # the heads are locked
    "checked",  # conflict rules have passed
    "sending",  # from here on the database may commit even if no acknowledgement arrives
    "inserting",  # between the rows of two tables
    "committing",  # all rows are sent, but not COMMIT
    "ratified",  # COMMIT was acknowledged
    "publishing",  # the commit file of one table is about to be written
    "published",  # the commit file is written
    "recorded",  # the publication is recorded in the database
]
# Work of the mirror that is done after some of the published versions.
MirrorPhase = Literal[
    "copied",  # at a replica: the data files of a commit are copied, its commit file is not written
    "checkpointing",  # a checkpoint is about to be written
    "checkpointed",  # the checkpoint is written, but not `_last_checkpoint`
    "cleaning",  # expired log files are about to be deleted
]
# The authority moves from the log to the database (cutover), or back to the log (rollback).
HandOverPhase = Literal[
    "claimed",  # the id of the cutover commit is recorded
    "handing over",  # the cutover commit is about to be written to the log
    "handed over",  # the cutover commit is in the log, but not in the database yet
    "taken over",  # the database is the authority
    "left",  # the table is removed from the catalog
    "giving back",  # the commit that allows other writers again is about to be written
    "given back",  # the commit that allows other writers again is in the log
]
Phase = WritePhase | CommitPhase | MirrorPhase | HandOverPhase
WRITE_PHASES: tuple[WritePhase, ...] = WritePhase.__args__  # type: ignore[attr-defined]
PHASES: tuple[CommitPhase, ...] = CommitPhase.__args__  # type: ignore[attr-defined]
MIRROR_PHASES: tuple[MirrorPhase, ...] = MirrorPhase.__args__  # type: ignore[attr-defined]
HAND_OVER_PHASES: tuple[HandOverPhase, ...] = HandOverPhase.__args__  # type: ignore[attr-defined]

_hook: Callable[[str], None] | None = None


def reached(phase: Phase) -> None:
    """Call the hook that `hooked` has set, if there is one."""
    if _hook is not None:
        _hook(phase)


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook` with the name of every point that the code in the block reaches."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before
