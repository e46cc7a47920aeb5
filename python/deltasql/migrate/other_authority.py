"""A log that another catalog took over is not ours to take: two would write one table.

Such a log tells it: in-commit timestamps are on, by a commit of ours. A rollback drops them, and
an export notes that it is a copy, which nobody owns until it goes on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltasql._core import parse_commit
from deltasql.commit.transaction import ENGINE_INFO
from deltasql.exceptions import OtherAuthorityError, TxnLogProtocolError
from deltasql.migrate.authority import CUTOVER, ENABLED_SINCE
from deltasql.mirror.read_log import stream_state
from deltasql.model.properties import TableProperties
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.migrate.import_run import ImportRun
    from deltasql.mirror.log_listing import LogListing
    from deltasql.model.actions import CommitInfo
    from deltasql.storage import Storage
    from deltasql.store.store import Store

COPY = "_delta_log/_deltasql_export.json"
"""Lies in the log of an export: up to which version it is a copy."""


def refuse_other_authority(run: ImportRun, listing: LogListing, known: Sequence[TableRow]) -> None:
    """Refuse to import a log that another catalog is the authority of, unless that is wanted."""
    options, live = run.options, next((each for each in known if each.dropped_at_ms is None), None)
    is_read_only = live.is_following if live else TableRow.FOLLOWING in options.properties
    if options.force or is_read_only:
        return
    head = None if live is None else run.store.head(live.table_id)
    if head is not None and head.version >= listing.last_version:
        return  # nothing is taken over
    found = _taken_over_by(run.storage, listing)
    if found is None or is_copy(run.storage, listing.last_version):
        return
    version, info = found
    if any(_is_ours(run.store, each, version, info.txn_id) for each in known):
        return
    raise other_authority(run.storage.location, version, info.txn_id)


def other_authority(
    location: str, version: int, txn_id: str | None, table: str | None = None
) -> OtherAuthorityError:
    """Return the error of a log that belongs to another catalog, with the ways out."""
    first = "Roll the table back there with `deltasql rollback`, then try again."
    lost = f"If that catalog is lost: `deltasql import {location} --force`"
    if table is not None:
        lost = f"If that catalog is lost: `deltasql rollback {table}`, which takes it out of this "
        lost += f"catalog and changes no file, then `deltasql import {location} --force`"
    only = "" if table is not None else " To read it only: `deltasql follow`."
    return OtherAuthorityError(
        f"the log at {location} belongs to another catalog: version {version} is its commit",
        table=table,
        location=location,
        version=version,
        txn_id=txn_id,
        help=f"{first} {lost}.{only}",
    )


def is_copy(storage: Storage, last_version: int) -> bool:
    """Tell whether a log is an export that nobody has gone on with."""
    try:
        note = json.loads(storage.read(COPY))
        return bool(note["lastVersion"] == last_version)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def _taken_over_by(storage: Storage, listing: LogListing) -> tuple[int, CommitInfo] | None:
    """Return the commit of ours that keeps writers by path out of a log; None when there is none.

    Where it was cleaned up, the latest commit tells who writes the log.
    """
    last = listing.last_version
    latest = _info(storage, listing, last)
    if latest is not None and latest.in_commit_timestamp is None:
        return None  # as most logs: told by one file
    try:
        metadata = stream_state(storage, last, listing=listing).metadata
    except (TxnLogProtocolError, FileNotFoundError):
        return None  # what is wrong with the log is told by those who load it
    if not TableProperties(metadata.configuration).in_commit_timestamps:
        return None
    since = int(metadata.configuration.get(ENABLED_SINCE, 0))
    for version, info in ((since, _info(storage, listing, since)), (last, latest)):
        if info is not None:
            return (version, info) if ENGINE_INFO in (info.engine_info or "") else None
    return None


def _info(storage: Storage, listing: LogListing, version: int) -> CommitInfo | None:
    file = listing.commits.get(version)
    if file is None:
        return None
    try:
        return parse_commit(storage.read(file.name), version=version).commit_info
    except (TxnLogProtocolError, FileNotFoundError):
        return None


def _is_ours(store: Store, table: TableRow, version: int, txn_id: str | None) -> bool:
    """Tell whether a commit is one of a table of this catalog: made, or about to be."""
    if table.is_following:
        return False
    if txn_id is not None and txn_id == table.properties.get(CUTOVER):
        return True
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    return bool(rows) and VersionRow.from_row(rows[0]).txn_id == txn_id
