"""The audit log: changes that users made through the console."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from deltasql.api.inspect.page import ABOVE_ALL, Page, cut, page_size, read_cursor, write_cursor
from deltasql.model.clock import from_ms
from deltasql.model.report import Report
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from deltasql.api.catalog.base import BaseCatalog


@dataclass(frozen=True, slots=True)
class AuditEntry(Report):
    """One change; `version` and `txn_id` are None if it was not a commit."""

    at: datetime
    user: str
    action: str
    table: str | None  # None if the table was removed from the database
    version: int | None
    txn_id: str | None
    is_dropped: bool  # whether the table is no longer in the catalog


def audit_log(catalog: BaseCatalog, *, limit: int, cursor: str | None) -> Page[AuditEntry]:
    """Return the audit log, newest first."""
    before = (ABOVE_ALL, "") if cursor is None else read_cursor("audit", cursor, int, str)
    rows, more = cut(
        catalog.store.query(
            "audit_page", before_ms=before[0], before_id=before[1], limit=page_size(limit) + 1
        ),
        limit,
    )
    items = tuple(
        AuditEntry(
            at=from_ms(at_ms),
            user=user,
            action=action,
            table=None if name is None else join_table_name(namespace, name),
            version=version,
            txn_id=txn_id,
            is_dropped=name is None or dropped_at_ms is not None,
        )
        for _, at_ms, user, action, namespace, name, version, txn_id, dropped_at_ms in rows
    )
    return Page(items, write_cursor("audit", rows[-1][1], rows[-1][0]) if more else None)
