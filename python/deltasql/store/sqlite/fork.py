"""Close database connections before the process forks.

A forked child inherits SQLite's information that the process holds file locks, but not the locks
themselves. So the next process that closes the database deletes the write-ahead log while the child
uses it, and the child's commits are lost. To prevent this, connections are closed before a fork and
opened again when needed.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from deltasql.storage.platform import register_at_fork


class ForkAware(Protocol):
    """An object with connections or locks, such as a pool."""

    def before_fork(self) -> None:
        """Lock the object, and close the connections that can be closed."""

    def after_fork(self, *, in_child: bool) -> None:
        """Unlock the object in the parent; reset it in the child."""


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_forking: list[ForkAware] = []


def register(owner: ForkAware) -> None:
    """Call the methods of an object before and after every fork, as long as the object exists."""
    _registered.add(owner)


def _before() -> None:
    _forking.extend(_registered)
    for owner in _forking:
        owner.before_fork()


def _after(*, in_child: bool) -> None:
    for owner in reversed(_forking):
        owner.after_fork(in_child=in_child)
    _forking.clear()


register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(in_child=False),
    after_in_child=lambda: _after(in_child=True),
)
