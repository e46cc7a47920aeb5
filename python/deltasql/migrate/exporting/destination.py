"""Choose the versions to export, and check the destination or find an interrupted export there."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TableExistsError, TxnLogStorageError, VersionNotFoundError
from deltasql.mirror.log.listing import find_log
from deltasql.model.json_text import load_json
from deltasql.storage.location import location_key
from deltasql.store.locations import (
    reject_nested_location,
    reject_replica,
    shared_location,
    tables_at,
)

if TYPE_CHECKING:
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

UNFINISHED_FILE = "_deltasql_export.json"
"""The file at the destination that describes an unfinished export, so that it can continue."""


@dataclass(frozen=True, slots=True)
class ExportSpan:
    """What to export: the versions first..last of a table, with or without their data files."""

    table_uuid: str
    location: str
    first: int
    last: int
    with_data: bool

    def to_json(self) -> bytes:
        """Return the content of the file that describes the export."""
        body = {
            "table": self.table_uuid,
            "location": self.location,
            "firstVersion": self.first,
            "lastVersion": self.last,
            "withData": self.with_data,
        }
        return json.dumps(body).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ExportSpan | None:
        """Parse the file that describes an export; return None if the file has other content."""
        try:
            body = load_json(data)
            return cls(
                body["table"],
                body["location"],
                body["firstVersion"],
                body["lastVersion"],
                body["withData"],
            )
        except (ValueError, KeyError, TypeError):
            return None


def choose_span(
    store: Store,
    table: TableRow,
    version: int | None,
    from_version: int | None,
    *,
    with_data: bool,
) -> ExportSpan:
    """Return the versions to export, by default all versions in the database.

    Raises VersionNotFoundError if a requested version does not exist.
    """
    low, high = store.query("version_bounds", table_id=table.table_id)[0]
    last = high if version is None else version
    first = low if from_version is None else from_version
    for each in (last, first):
        if not low <= each <= high:
            raise VersionNotFoundError(
                f"{table.full_name} has no version {each}; it has {low} to {high}",
                table=table.full_name,
                version=each,
                latest=high,
            )
    if first > last:
        raise VersionNotFoundError(
            f"the first version to export, {first}, is after the last, {last}",
            table=table.full_name,
            version=first,
            latest=last,
            help="Give a from_version that is not after version.",
        )
    return ExportSpan(table.table_uuid, table.location, first, last, with_data)


def continues(
    unfinished: ExportSpan, wanted: ExportSpan, version: int | None, from_version: int | None
) -> bool:
    """Return whether the requested export is the same as the interrupted one."""
    same = replace(
        wanted,
        last=unfinished.last if version is None else wanted.last,
        first=unfinished.first if from_version is None else wanted.first,
    )
    return same == unfinished


def find_unfinished(target: Storage) -> ExportSpan | None:
    """Return the export that was interrupted at the destination; None if the location is empty.

    Raises an error if the destination contains anything else.
    """
    try:
        unfinished = ExportSpan.from_json(target.read(UNFINISHED_FILE))
    except FileNotFoundError:
        unfinished = None
    if unfinished is not None:
        return unfinished
    found = next(iter(target.list()), None)
    if found is None:
        return None
    if find_log(target) is not None:
        raise TableExistsError(
            f"A table already exists at: {target.location}",
            help="Export to an empty location.",
        )
    raise not_empty(target, found.name)


def reject_location_in_use(store: Store, table: TableRow, target: Storage) -> None:
    """Raise if the destination is in, at or above the location of a table of the catalog."""
    if location_key(target.location).startswith(location_key(table.location)):
        raise TxnLogStorageError(
            f"cannot export {table.full_name} to {target.location}, which is the location of the "
            "table itself or inside it",
            location=target.location,
            operation="export",
            help="Export to a location outside the table.",
        )
    for other in tables_at(store.query, target.location):
        raise shared_location(other, target.location)
    reject_nested_location(store.query, target.location)
    reject_replica(store.query, target.location, allow_nested=False)


def not_empty(target: Storage, name: str) -> TxnLogStorageError:
    """Return the error for a destination that contains a file."""
    return TxnLogStorageError(
        f"{target.location} is not empty: it contains {name}",
        location=target.location,
        name=name,
        operation="export",
        help="Export to an empty location. To continue an interrupted export, repeat the same "
        "call; to start over, delete its files first.",
    )
