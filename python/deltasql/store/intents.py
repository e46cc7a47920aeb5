"""Let a vacuum take over intents; their transactions can then no longer commit the files."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deltasql.store.store import Store

    Intent = tuple[str, str]


def take_intents(store: Store, table_id: int, intents: Collection[Intent]) -> dict[Intent, str]:
    """Take intents, given as (txn id, path), from transactions that are not committing now.

    Returns for each intent taken the new id it is stored under. If the vacuum fails before it has
    deleted the files, the next vacuum finds the intents under these ids.
    """
    if not intents:
        return {}
    taker, taken = uuid.uuid4(), {}
    with store.change() as (session, _):
        for txn_id, path in intents:
            taken_by = f"{taker}/{txn_id}"
            intent = {"txn_id": txn_id, "table_id": table_id, "path": path}
            if session.execute("take_staged_file", **intent, taken_by=taken_by):
                taken[txn_id, path] = taken_by
    return taken


def delete_taken_intents(store: Store, table_id: int, taken: Mapping[Intent, str]) -> None:
    """Delete intents that a vacuum took, after it has deleted their files."""
    if not taken:
        return
    with store.change() as (session, _):
        for (_, path), taken_by in taken.items():
            session.execute("clear_staged_file", txn_id=taken_by, table_id=table_id, path=path)
