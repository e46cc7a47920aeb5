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

    def before_fork(self, *, quiet: bool) -> bool:
        """Lock, close what can be closed; `quiet` and the answer tell that nothing is in use."""

    def after_fork(self, *, in_child: bool) -> None:
        """Unlock in the parent; start from nothing in the child."""


_pools: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_readers: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[ForkAware] = []


def watch(holder: ForkAware, *, after_pools: bool = False) -> None:
    """Tell a holder of connections about forks; readers close after the pools."""
    (_readers if after_pools else _pools).add(holder)


def _before() -> None:
    pools, readers = list(_pools), list(_readers)
    _held.extend([*pools, *readers])
    quiet = True
    for pool in pools:
        quiet = pool.before_fork(quiet=quiet)
    for reader in readers:
        reader.before_fork(quiet=quiet)


def _after(*, in_child: bool) -> None:
    for holder in reversed(_held):
        holder.after_fork(in_child=in_child)
    _held.clear()


os.register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(in_child=False),
    after_in_child=lambda: _after(in_child=True),
)
