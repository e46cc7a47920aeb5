"""Leases of auto compaction: which process compacts a table, and whose files must stay in place.

A lease is a row of `dl_meta`. Its value is the time at which it ends, in 15 digits, and its owner.
A lease that ended counts as free, because its owner may have died.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import CommitConflictError, TxnLogError
from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from deltasql.store.dialect import Session
    from deltasql.store.locations import Query
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_HOLD_MS = 3_600_000
# No setting allows a longer lease. If one ends later than this, it was written by a process whose
# clock was ahead.
_LONGEST_MS = 86_400_000


def take_compaction(store: Store, table_id: int, owner: str, duration_s: float) -> str | None:
    """Take the lease to compact a table; return the lease, or None if another process has it."""
    now = now_ms()
    lease = _lease(now + int(1000 * duration_s), owner)
    with store.relaxed() as session:
        session.execute("delete_ended_leases", pattern=f"{_hold_key(table_id, '')}%", **_span(now))
        taken = session.execute("take_lease", key=_key(table_id), lease=lease, **_span(now))
    return lease if taken else None


def release_compaction(store: Store, table_id: int, lease: str) -> None:
    """Release a lease to compact a table, if it is still ours."""
    with store.relaxed() as session:
        session.execute("release_lease", key=_key(table_id), lease=lease)


def hold_files(store: Store, table: TableRow, txn_id: str) -> int | None:
    """Keep auto compaction from committing to a table until a transaction ends.

    Returns the latest version of the table: no later version is an auto compaction. A hold ends
    after an hour. Returns None if the table does not exist any more.
    """
    now = now_ms()
    lease = _lease(now + _HOLD_MS, txn_id)
    # A commit locks the head, too. So a compaction that is committing now is visible in the head,
    # and any later one finds the hold.
    with store.change([table.table_id]) as (session, heads):
        key = _hold_key(table.table_id, txn_id)
        session.execute("take_lease", key=key, lease=lease, **_span(now))
        head = heads.get(table.table_id)
    return None if head is None else head.version


def release_files(store: Store, table_id: int, txn_id: str) -> None:
    """Allow auto compaction again; if the database fails, the hold ends after its hour."""
    try:
        with store.relaxed() as session:
            session.execute("release_hold", key=_hold_key(table_id, txn_id))
    except TxnLogError as error:
        telemetry.log(_log, logging.WARNING, "hold not released", txn_id=txn_id, error=str(error))


def is_held(query: Query, table_id: int) -> bool:
    """Return whether a transaction holds the files of a table."""
    pattern = f"{_hold_key(table_id, '')}%"
    return bool(query("leases_held", pattern=pattern, **_span(now_ms()))[0][0])


def reject_held(session: Session, table: TableRow) -> None:
    """Raise CommitConflictError if a transaction holds the files of a table."""
    if is_held(session.query, table.table_id):
        raise CommitConflictError(
            f"another transaction is changing rows of {table.full_name}", table=table.full_name
        )


def _key(table_id: int) -> str:
    return f"auto_compact:{table_id}"


def _hold_key(table_id: int, txn_id: str) -> str:
    return f"hold_files:{table_id}:{txn_id}"


def _lease(until_ms: int, owner: str) -> str:
    return f"{until_ms:015d} {owner}"


def _span(now: int) -> dict[str, str]:
    return {"now": f"{now:015d}", "longest": f"{now + _LONGEST_MS:015d}"}
