"""A ratified commit as the bytes of its `_delta_log` file: the same commit, the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.store.records import (
    VersionRow,
    add_from_row,
    cdc_from_row,
    domain_from_row,
    metadata_from_row,
    protocol_from_row,
    remove_from_row,
    txn_from_row,
)

if TYPE_CHECKING:
    from deltasql.model.actions import Action
    from deltasql.store.dialect import Session


def commit_file(version: int) -> str:
    """Return the name of a commit file.

    >>> commit_file(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"_delta_log/{version:020d}.json"


def commit_bytes(session: Session, table_id: int, version: int) -> bytes:
    """Read a commit back from SQL and encode it canonically."""
    return _core.encode_commit(commit_actions(session, table_id, version))


def commit_actions(session: Session, table_id: int, version: int) -> list[Action]:
    """Return a commit's actions in canonical order, with a fixed number of statements."""
    span = {"table_id": table_id, "after": version - 1, "last": version}
    rows = session.query("history", table_id=table_id, first=version - 1, last=version, limit=2)
    row = VersionRow.from_row(rows[0])
    first_file_id = VersionRow.from_row(rows[1]).next_file_id if len(rows) > 1 else 1
    actions: list[Action] = [row.info]
    actions += [protocol_from_row(r) for r in session.query("protocol_between", **span)]
    actions += [metadata_from_row(r) for r in session.query("metadata_between", **span)]
    actions += [txn_from_row(r[1:]) for r in session.query("txns_between", **span)]
    actions += [domain_from_row(r[1:]) for r in session.query("domains_between", **span)]
    actions += [remove_from_row(r) for r in session.query("removes_between", **span)]
    if row.next_file_id > first_file_id:
        adds = session.query(
            "adds_between",
            table_id=table_id,
            first_file_id=first_file_id,
            next_file_id=row.next_file_id,
        )
        actions += [add_from_row(r) for r in adds]
    actions += [cdc_from_row(r) for r in session.query("cdc_between", **span)]
    return actions
