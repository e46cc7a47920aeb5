"""Intents that a vacuum takes over: from then on no transaction can commit the files they name."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deltasql.store.store import Store

    Intent = tuple[str, str]


def take_intents(store: Store, table_id: int, intents: Collection[Intent]) -> dict[Intent, str]:
    """Take intents, (txn id, path), from their transactions, but for those that commit now.

    Returns the id under which each is noted since. Should the vacuum die before the files are
    gone, the next one finds them by it.
    """
    if not intents:
        return {}
    taker, taken = uuid.uuid4(), {}
    with store.change() as (session, _):
        for txn_id, path in intents:
            taken_by = f"{taker}/{txn_id}"
            of = {"txn_id": txn_id, "table_id": table_id, "path": path}
            if session.execute("take_staged_file", **of, taken_by=taken_by):
                taken[txn_id, path] = taken_by
    return taken


def forget_intents(store: Store, table_id: int, taken: Mapping[Intent, str]) -> None:
    """Take the intents off the list whose files are gone."""
    if not taken:
        return
    with store.change() as (session, _):
        for (_, path), taken_by in taken.items():
            session.execute("clear_staged_file", txn_id=taken_by, table_id=table_id, path=path)
