"""The audit log: who changed what, written in the SQL transaction of the change."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.store.dialect import Session


@dataclass(frozen=True, slots=True)
class Actor:
    """The person who started an action, and the action."""

    user: str
    action: str


_ACTOR: ContextVar[Actor | None] = ContextVar("deltasql_actor", default=None)


@contextmanager
def acting_as(user: str, action: str) -> Iterator[None]:
    """Write every change that this thread makes in the block to the audit log."""
    token = _ACTOR.set(Actor(user, action))
    try:
        yield
    finally:
        _ACTOR.reset(token)


def is_audited() -> bool:
    """Return whether changes of this thread must be written to the audit log."""
    return _ACTOR.get() is not None


def record(
    session: Session, table_id: int, *, version: int | None = None, txn_id: str | None = None
) -> None:
    """Add a row to the audit log if this thread acts for a user; the caller commits."""
    actor = _ACTOR.get()
    if actor is not None:
        row = (uuid.uuid4().hex, now_ms(), actor.user, actor.action, table_id, version, txn_id)
        session.insert("insert_audit", [row])
