"""Load the rows of many commits at once, to import a log.

A table without a head is not visible, so its rows can be written in several transactions. The last
transaction writes the head.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltasql.store.append import changed_columns, partition_ids
from deltasql.store.records import (
    SkippingColumn,
    TableRow,
    version_row,
    with_derived_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql._core import LogFiles, SeenFiles
    from deltasql.store.dialect import Row, Session
    from deltasql.store.records import Commit

# The order matters: rows are inserted after the rows they refer to.
_INSERTS = (
    "insert_metadata",
    "insert_protocol",
    "insert_txn",
    "insert_domain_metadata",
    "insert_cdc_file",
)
# Statements that delete what an unfinished load may have written.
_DISCARDS = (
    "discard_files",
    "discard_file_stats",
    "discard_remove_files",
    "discard_partitions",
    "discard_skipping_columns",
)


@dataclass(slots=True)
class SkippingColumns:
    """All columns that were ever indexed for a table, and the changes that are not written yet."""

    columns: list[SkippingColumn] = field(default_factory=list)
    added: list[SkippingColumn] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, session: Session, table_id: int) -> SkippingColumns:
        rows = session.query("skipping_columns", table_id=table_id)
        return cls([SkippingColumn.from_row(row) for row in rows])

    def copy(self) -> SkippingColumns:
        """Return the same columns, without unwritten changes."""
        return SkippingColumns(list(self.columns))

    def change(self, wanted: Iterable[tuple[tuple[str, ...], str]], first_file_id: int) -> None:
        """Index exactly these columns for files with `first_file_id` or a higher id."""
        new, ended = changed_columns(self.columns, wanted, first_file_id)
        self.columns = [
            replace(column, end_file_id=first_file_id) if column.column_id in ended else column
            for column in self.columns
        ]
        self.columns += new
        self.added += new
        self.ended |= dict.fromkeys(ended, first_file_id)

    @property
    def active(self) -> list[tuple[int, tuple[str, ...], str]]:
        """(id, path, type) of the columns that are indexed now."""
        return [column.key for column in self.columns if column.end_file_id is None]


@dataclass(slots=True)
class LoadPlan:
    """The rows of consecutive commits, to be written together."""

    table_id: int
    files: LogFiles
    rows: dict[str, list[Row]] = field(default_factory=dict)
    versions: list[tuple[Commit, int]] = field(default_factory=list)
    """Each commit, with the first file id after those of the commit."""
    columns: SkippingColumns = field(default_factory=SkippingColumns)

    def add(self, name: str, rows: Iterable[Row]) -> None:
        """Add rows for an INSERT statement."""
        self.rows.setdefault(name, []).extend(rows)


def claim(session: Session, table_id: int, token: str) -> bool:
    """Claim a table that is being loaded; return False if it is visible or does not exist.

    The token identifies the process that loads the table (see `is_claimed`).
    """
    properties = _loading(session, table_id)
    if properties is None:
        return False
    text = json.dumps(properties | {TableRow.LOADING: token})
    session.execute("set_loading_properties", table_id=table_id, properties=text)
    return True


def clear(session: Session, table_id: int) -> None:
    """Delete the rows of an earlier, unfinished load of a table."""
    for each in _DISCARDS:
        session.execute(each, table_id=table_id)


def is_claimed(session: Session, table_id: int, token: str) -> bool:
    """Lock the table's row; return whether the table is being loaded with this token."""
    properties = _loading(session, table_id)
    return properties is not None and properties[TableRow.LOADING] == token


def is_loading(session: Session, table_id: int) -> bool:
    """Lock the table's row; return whether the table is being loaded by any process."""
    return _loading(session, table_id) is not None


def write(
    session: Session,
    plan: LoadPlan,
    known: dict[str, int],
    *,
    is_first: bool,
    seen: SeenFiles | None = None,
) -> None:
    """Write the rows of a plan; the ids of new partitions are added to `known`.

    If `seen` shows that a file was never added before, the file is not looked up.
    """
    files, table_id = plan.files, plan.table_id
    keys = [] if is_first else files.keys(seen)
    live = session.query("live_by_key", table_id=table_id, keys=keys) if keys else []
    ended, versions = files.resolve([(bytes(row[0]), row[1]) for row in live])
    if ended:
        session.execute(
            "end_files",
            table_id=table_id,
            file_ids=ended,
            versions=versions,
            pairs=list(zip(ended, versions, strict=True)),
        )
    _write_columns(session, plan)
    wanted = files.partitions
    found, new = partition_ids(session, table_id, wanted, known)
    if new:
        session.insert("insert_partition", new)
    known.update(found)
    ids = [known[values] for values in wanted]
    session.insert_log("insert_loaded_file", files.file_rows(table_id, ids))
    session.insert_log("insert_file_stats", files.stats_rows(table_id))
    session.insert_log("insert_remove_file", files.remove_rows(table_id))
    for name in _INSERTS:
        if rows := plan.rows.get(name):
            session.insert(name, rows)
    if plan.versions:
        session.insert("insert_version", _version_rows(session, plan))
    if seen is not None:
        # If the transaction fails later, these entries stay. They only cause unnecessary lookups.
        seen.add(files)


def _loading(session: Session, table_id: int) -> dict[str, str] | None:
    """Return the properties of a table that is being loaded; None for any other table."""
    rows = session.query("loading_properties", table_id=table_id)
    properties: dict[str, str] = json.loads(rows[0][0]) if rows else {}
    return properties if TableRow.LOADING in properties else None


def _version_rows(session: Session, plan: LoadPlan) -> list[Row]:
    """Return the rows of commits; a repeated transaction id is replaced by a derived id.

    A log may contain any string as transaction id, so two commits may have the same one.
    """
    ids = [commit.txn_id for commit, _ in plan.versions]
    rows = session.query("taken_txn_ids", table_id=plan.table_id, txn_ids=ids)
    taken = {row[0] for row in rows}
    found = []
    for commit, next_file_id in plan.versions:
        own = with_derived_id(commit) if commit.txn_id in taken else commit
        taken.add(own.txn_id)
        found.append(version_row(own, next_file_id))
    return found


def _write_columns(session: Session, plan: LoadPlan) -> None:
    columns, table_id = plan.columns, plan.table_id
    if columns.added:
        rows = [column.to_row(table_id) for column in columns.added]
        session.insert("insert_skipping_column", rows)
    for column_id, end_file_id in columns.ended.items():
        session.execute(
            "end_skipping_column", table_id=table_id, column_id=column_id, end_file_id=end_file_id
        )
