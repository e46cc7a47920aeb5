"""What must not be open while the process forks.

A forked child inherits SQLite's belief that this process holds its file locks, but not the
locks: the next process that closes the database takes the log away from under the child, and
its commits are lost. So connections are closed before a fork, and opened again when needed.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """A holder of connections."""

    def before_fork(self) -> None:
        """Lock, and close what can be closed."""

    def after_fork(self, *, in_child: bool) -> None:
        """Unlock in the parent; start from nothing in the child."""


_holders: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[ForkAware] = []


def watch(holder: ForkAware) -> None:
    """Tell a holder of connections about forks."""
    _holders.add(holder)


def _before() -> None:
    _held.extend(_holders)
    for holder in _held:
        holder.before_fork()


def _after(*, in_child: bool) -> None:
    for holder in reversed(_held):
        holder.after_fork(in_child=in_child)
    _held.clear()


os.register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(in_child=False),
    after_in_child=lambda: _after(in_child=True),
)
