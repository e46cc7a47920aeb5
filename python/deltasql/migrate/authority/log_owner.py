"""Find the catalog that owns a log, so that two catalogs never write the same table.

A catalog owns a log if the log is fenced or has in-commit timestamps, and if deltasql has written a
commit since they were enabled. Three operations change the owner:

- A rollback drops the fence and the timestamps, or writes a file which says that the ownership
  ended.
- An export writes a file which says that the log is a copy. No catalog owns a copy before its first
  new commit.
- An import with `force` writes a file with the new owner, because no commit shows the change.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql._core import parse_commit
from deltasql.commit.conflict import ENGINE_INFO
from deltasql.exceptions import OtherAuthorityError, TxnLogProtocolError
from deltasql.migrate.authority.handover import (
    CUTOVER,
    ENABLED_SINCE,
    properties_of,
    set_properties,
)
from deltasql.mirror.log.encode import version_row
from deltasql.mirror.log.read import stream_state
from deltasql.model.json_text import load_json
from deltasql.model.properties import TableProperties
from deltasql.operations.alter.fence import is_fenced
from deltasql.store.locations import tables_at
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.migrate.importing.run import ImportRun
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.actions import CommitInfo
    from deltasql.storage import Storage

COPY_FILE = "_delta_log/_deltasql_export.json"
"""The file in an exported log that contains the last version that was copied."""

OWNER_FILE = "_delta_log/_deltasql_authority.json"
"""The file that records a takeover with `force`, or the end of ownership by a rollback."""

TAKEN = "deltasql.taken"
"""The table property with the token of the owner file, after a takeover with `force`."""
_RECENT = 5  # how many latest commits to search for one that deltasql wrote


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The catalog that owns a log, as far as the log shows this."""

    since: int  # the version that enabled in-commit timestamps; 0 if they are not enabled
    version: int  # the latest commit of deltasql since then
    txn_id: str | None
    released: int = -1  # commits of deltasql up to this version do not prove ownership
    taken_by: str | None = None  # the token of the table that took the log over with `force`


def check_owner(run: ImportRun, listing: LogListing, known: Sequence[TableRow]) -> None:
    """Raise if another catalog owns the log, unless the import is forced."""
    options, live = run.options, next((each for each in known if each.dropped_at_ms is None), None)
    is_read_only = live.is_following if live else TableRow.FOLLOWING in options.properties
    if is_read_only:
        return
    head = None if live is None else run.store.head(live.table_id)
    if head is not None and head.version >= listing.last_version and not options.force:
        return  # there is nothing to import
    owner = find_owner(run.storage, listing)
    if owner is None or any(_is_owner(run, listing, each, owner) for each in known):
        return
    if not options.force:
        raise other_owner(run.storage.location, *_takeover_commit(run.storage, listing, owner))
    run.takes_ownership = True


def record_taken_over(run: ImportRun, listing: LogListing) -> None:
    """Record in the log that this catalog owns it now, after an import with `force`.

    The previous owner notices the change by this file. New commits alone would not show it, because
    they look like commits of the previous owner.
    """
    if not run.takes_ownership or run.options.dry_run:
        return
    here = tables_at(run.store.query, run.storage.location)
    live = next((each for each in here if each.dropped_at_ms is None), None)
    if live is None:
        return
    token = str(uuid.uuid4())
    with run.store.change([live.table_id]) as (session, _):
        set_properties(session, live, {**properties_of(session, live), TAKEN: token})
    run.store.forget_table(live)
    _put_owner_file(run.storage, listing.last_version, token)


def record_released(storage: Storage, listing: LogListing, table: TableRow, last: int) -> None:
    """Record in the log that no catalog owns it after version `last`, if a catalog does now."""
    owner = find_owner(storage, listing)
    if owner is None or owner.version > last:
        return
    if owner.taken_by in (None, table.properties.get(TAKEN)):
        _put_owner_file(storage, last, None)


def other_owner(
    location: str, version: int, txn_id: str | None, table: str | None = None
) -> OtherAuthorityError:
    """Return the error for a log that another catalog owns, with the possible solutions."""
    first = "Run `deltasql rollback` in that catalog, then try again."
    lost = f"If that catalog is lost, run `deltasql import {location} --force`"
    if table is not None:
        lost = f"If that catalog is lost, run `deltasql rollback {table}`, which removes the table "
        lost += "from this catalog and changes no file, and then "
        lost += f"`deltasql import {location} --force`"
    only = "" if table is not None else " To only read the table, use `deltasql follow`."
    return OtherAuthorityError(
        f"the log at {location} belongs to another catalog, which committed version {version}",
        table=table,
        location=location,
        version=version,
        txn_id=txn_id,
        help=f"{first} {lost}.{only}",
    )


def find_owner(storage: Storage, listing: LogListing) -> LogOwner | None:
    """Return the catalog that owns a log; None if no deltasql catalog does.

    The owner is found by the latest commit of deltasql among the last few commits, or else by the
    commit that enabled in-commit timestamps.
    """
    last = listing.last_version
    recent = [each for each in range(last, last - _RECENT, -1) if each in listing.commits]
    infos = (_info(storage, listing, each) for each in recent)
    if recent and not any(each is not None and _may_be_owned(each) for each in infos):
        return None  # the usual case: reading a few files is enough
    try:
        state = stream_state(storage, last, listing=listing)
    except (TxnLogProtocolError, FileNotFoundError):
        return None  # loading the log will raise the error
    metadata = state.metadata
    has_timestamps = TableProperties(metadata.configuration).in_commit_timestamps
    if not (has_timestamps or is_fenced(state.protocol)):
        return None
    since = int(metadata.configuration.get(ENABLED_SINCE, 0))
    latest = _latest_commit(storage, listing, last, since)
    if latest is None:
        return None
    copied, recorded = _read_json(storage, COPY_FILE), _read_json(storage, OWNER_FILE)
    released, taken_by = _last_version(copied), None
    if recorded.get("takenBy") is None:
        released = max(released, _last_version(recorded))
    elif _last_version(recorded) >= since:  # otherwise a rollback and a new cutover came later
        taken_by = str(recorded["takenBy"])
    version, info = latest
    if version <= released and taken_by is None:
        return None
    return LogOwner(since, version, info.txn_id, released, taken_by)


def _may_be_owned(info: CommitInfo) -> bool:
    """Return whether a catalog may own a log that contains this commit.

    The log may have in-commit timestamps. Or it may be fenced: then only deltasql can commit.
    """
    return info.in_commit_timestamp is not None or ENGINE_INFO in (info.engine_info or "")


def _latest_commit(
    storage: Storage, listing: LogListing, last: int, since: int
) -> tuple[int, CommitInfo] | None:
    """Return the latest commit of deltasql among the last few up to `last`, or else at `since`."""
    if last < since:
        return None
    for version in dict.fromkeys([*range(last, max(last - _RECENT, since - 1), -1), since]):
        info = _info(storage, listing, version)
        if info is not None and ENGINE_INFO in (info.engine_info or ""):
            return version, info
    return None


def _takeover_commit(
    storage: Storage, listing: LogListing, owner: LogOwner
) -> tuple[int, str | None]:
    """Return the commit to show in the error: if possible the one that took over the log."""
    first = _latest_commit(storage, listing, owner.since, owner.since)
    return (owner.version, owner.txn_id) if first is None else (first[0], first[1].txn_id)


def _info(storage: Storage, listing: LogListing, version: int) -> CommitInfo | None:
    file = listing.commits.get(version)
    if file is None:
        return None
    try:
        return parse_commit(storage.read(file.name), version=version).commit_info
    except (TxnLogProtocolError, FileNotFoundError):
        return None


def _is_owner(run: ImportRun, listing: LogListing, table: TableRow, owner: LogOwner) -> bool:
    """Return whether a table of this catalog is the owner of a log."""
    if table.is_following or table.is_loading:
        return False
    if owner.txn_id is not None and owner.txn_id == table.properties.get(CUTOVER):
        return True
    if owner.taken_by is not None:
        return owner.taken_by == table.properties.get(TAKEN)
    store, head = run.store, run.store.head(table.table_id)
    if head is None:
        return False
    version, txn_id = owner.version, owner.txn_id
    if version > head.version:
        # A catalog that was restored from a backup lacks its latest commits but has earlier ones.
        common = _latest_commit(run.storage, listing, head.version, owner.since)
        if table.dropped_at_ms is not None or common is None or common[0] <= owner.released:
            return False
        version, txn_id = common[0], common[1].txn_id
    row = version_row(store, table.table_id, version)
    return row is not None and row.txn_id == txn_id


def _put_owner_file(storage: Storage, last_version: int, taken_by: str | None) -> None:
    body = {"lastVersion": last_version, "takenBy": taken_by}
    storage.put(OWNER_FILE, json.dumps(body).encode())


def _read_json(storage: Storage, name: str) -> dict[str, Any]:
    """Return the JSON object in a file; an empty object if the file is missing or invalid."""
    try:
        body = load_json(storage.read(name))
    except (FileNotFoundError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _last_version(body: dict[str, Any]) -> int:
    version = body.get("lastVersion")
    return version if isinstance(version, int) else -1
