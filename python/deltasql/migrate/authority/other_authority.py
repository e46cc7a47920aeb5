"""A log that another catalog took over is not ours to take: two would write one table.

Such a log tells it: in-commit timestamps are on, and since then a commit is ours. A rollback drops
them, or notes that it left them on; an export notes that it is a copy, which nobody owns until it
goes on; and who takes a log over by force notes that too, since no commit tells it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql._core import parse_commit
from deltasql.commit.committer import ENGINE_INFO
from deltasql.exceptions import OtherAuthorityError, TxnLogProtocolError
from deltasql.migrate.authority.authority import (
    CUTOVER,
    ENABLED_SINCE,
    properties_of,
    set_properties,
)
from deltasql.mirror.log.read import stream_state
from deltasql.model.json_text import load_json
from deltasql.model.properties import TableProperties
from deltasql.store.locations import tables_at
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.migrate.importing.run import ImportRun
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.actions import CommitInfo
    from deltasql.storage import Storage
    from deltasql.store.store import Store

COPY = "_delta_log/_deltasql_export.json"
"""Lies in the log of an export: up to which version it is a copy."""

NOTE = "_delta_log/_deltasql_authority.json"
"""Tells what no commit does: who took the log over by force, or that it was given back."""

TAKEN = "deltasql.taken"  # of a table: the token in the note of a log that it took by force
_LATE = 5  # commits that tell who writes a log: one of others may be the latest


@dataclass(frozen=True, slots=True)
class Authority:
    """Who took a log over, as the log tells it."""

    since: int  # the version that turned in-commit timestamps on
    version: int  # the latest commit of ours since then
    txn_id: str | None
    given_back: int = -1  # up to here the commits of ours tell nothing
    taken_by: str | None = None  # the token of the table that took it over by force


def refuse_other_authority(run: ImportRun, listing: LogListing, known: Sequence[TableRow]) -> None:
    """Refuse to import a log that another catalog is the authority of, unless that is wanted."""
    options, live = run.options, next((each for each in known if each.dropped_at_ms is None), None)
    is_read_only = live.is_following if live else TableRow.FOLLOWING in options.properties
    if is_read_only:
        return
    head = None if live is None else run.store.head(live.table_id)
    if head is not None and head.version >= listing.last_version and not options.force:
        return  # nothing is taken over
    found = authority_of(run.storage, listing)
    if found is None or any(_is_ours(run, listing, each, found) for each in known):
        return
    if not options.force:
        raise other_authority(run.storage.location, *_told(run.storage, listing, found))
    run.takes_over = True


def note_taken_over(run: ImportRun, listing: LogListing) -> None:
    """Leave word to the catalog that a log was taken from: its commits look like its own."""
    if not run.takes_over or run.options.dry_run:
        return
    here = tables_at(run.store.query, run.storage.location)
    live = next((each for each in here if each.dropped_at_ms is None), None)
    if live is None:
        return
    token = str(uuid.uuid4())
    with run.store.change([live.table_id]) as (session, _):
        set_properties(session, live, {**properties_of(session, live), TAKEN: token})
    run.store.forget_table(live)
    _put_note(run.storage, listing.last_version, token)


def note_given_back(store: Store, storage: Storage, listing: LogListing, table: TableRow) -> None:
    """Leave word that a table left its catalog, where its log goes on with in-commit timestamps."""
    head, found = store.head(table.table_id), authority_of(storage, listing)
    if head is None or found is None or found.version > head.version:
        return
    if found.taken_by in (None, table.properties.get(TAKEN)):
        _put_note(storage, head.version, None)


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


def authority_of(storage: Storage, listing: LogListing) -> Authority | None:
    """Tell who keeps writers by path out of a log; None when it is nobody, or not one of ours.

    The latest commit of ours tells it, among the last few; before those, the one that turned
    in-commit timestamps on.
    """
    last = listing.last_version
    late = [each for each in range(last, last - _LATE, -1) if each in listing.commits]
    infos = (_info(storage, listing, each) for each in late)
    if late and all(each is None or each.in_commit_timestamp is None for each in infos):
        return None  # as most logs: told by a few files
    try:
        metadata = stream_state(storage, last, listing=listing).metadata
    except (TxnLogProtocolError, FileNotFoundError):
        return None  # what is wrong with the log is told by those who load it
    if not TableProperties(metadata.configuration).in_commit_timestamps:
        return None
    since = int(metadata.configuration.get(ENABLED_SINCE, 0))
    latest = _latest_of_ours(storage, listing, last, since)
    if latest is None:
        return None
    copied, note = _read(storage, COPY), _read(storage, NOTE)
    given_back, taken_by = _version_in(copied), None
    if note.get("takenBy") is None:
        given_back = max(given_back, _version_in(note))
    elif _version_in(note) >= since:  # else it was given back since, and cut over anew
        taken_by = str(note["takenBy"])
    version, info = latest
    if version <= given_back and taken_by is None:
        return None
    return Authority(since, version, info.txn_id, given_back, taken_by)


def _latest_of_ours(
    storage: Storage, listing: LogListing, last: int, since: int
) -> tuple[int, CommitInfo] | None:
    """Return the latest commit of ours up to a version, as far as it is looked for."""
    if last < since:
        return None
    for version in dict.fromkeys([*range(last, max(last - _LATE, since - 1), -1), since]):
        info = _info(storage, listing, version)
        if info is not None and ENGINE_INFO in (info.engine_info or ""):
            return version, info
    return None


def _told(storage: Storage, listing: LogListing, found: Authority) -> tuple[int, str | None]:
    """Return the commit that an error names: the one that took over, where it can be told."""
    first = _latest_of_ours(storage, listing, found.since, found.since)
    return (found.version, found.txn_id) if first is None else (first[0], first[1].txn_id)


def _info(storage: Storage, listing: LogListing, version: int) -> CommitInfo | None:
    file = listing.commits.get(version)
    if file is None:
        return None
    try:
        return parse_commit(storage.read(file.name), version=version).commit_info
    except (TxnLogProtocolError, FileNotFoundError):
        return None


def _is_ours(run: ImportRun, listing: LogListing, table: TableRow, found: Authority) -> bool:
    """Tell whether a table of this catalog is the one that a log belongs to."""
    if table.is_following or table.is_loading:
        return False
    if found.txn_id is not None and found.txn_id == table.properties.get(CUTOVER):
        return True
    if found.taken_by is not None:
        return found.taken_by == table.properties.get(TAKEN)
    store, head = run.store, run.store.head(table.table_id)
    if head is None:
        return False
    version, txn_id = found.version, found.txn_id
    if version > head.version:
        # A catalog that was restored from a backup lacks its latest commits, not those before.
        common = _latest_of_ours(run.storage, listing, head.version, found.since)
        if table.dropped_at_ms is not None or common is None or common[0] <= found.given_back:
            return False
        version, txn_id = common[0], common[1].txn_id
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    return bool(rows) and VersionRow.from_row(rows[0]).txn_id == txn_id


def _put_note(storage: Storage, last_version: int, taken_by: str | None) -> None:
    note = {"lastVersion": last_version, "takenBy": taken_by}
    storage.put(NOTE, json.dumps(note).encode())


def _read(storage: Storage, name: str) -> dict[str, Any]:
    """Return a note; an empty one when there is none, or none of ours."""
    try:
        note = load_json(storage.read(name))
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _version_in(note: dict[str, Any]) -> int:
    version = note.get("lastVersion")
    return version if isinstance(version, int) else -1
