"""The totals that checksum files tell, against SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import LogParseError
from deltasql.mirror.log.listing import read_json
from deltasql.mirror.log.read import contents_or_none
from deltasql.mirror.verify.compare import Difference, compare_mappings
from deltasql.store.records import (
    domain_from_row,
    metadata_from_row,
    protocol_from_row,
    txn_from_row,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.verify.compare import Differences
    from deltasql.model.actions import Action
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def check_checksums(
    store: Store,
    table: TableRow,
    storage: Storage,
    listing: LogListing,
    versions: range,
    found: Differences,
) -> int:
    """Compare every checksum file with SQL, which is asked once for all; return how many."""
    told = [version for version in versions if version in listing.checksums]
    if not told:
        return 0
    totals = _Totals(store, table.table_id, told[-1])
    names = [listing.checksums[version].name for version in told]
    for version, name, data in zip(told, names, contents_or_none(storage, names), strict=True):
        if data is None:  # cleaned up since the listing
            continue
        at: dict[str, Any] = {"version": version, "source": "crc", "path": name}
        try:
            seen = read_json(name, data, needs="numFiles")
        except LogParseError as error:
            found.add(Difference("unreadable", log=error.message, **at))
            continue
        ours = totals.at(version)
        for name_of, key in (("appId", "setTransactions"), ("domain", "domainMetadata")):
            if key in seen:
                seen[key] = {each.get(name_of): each for each in seen[key]}
        # Most of it may be left out of a checksum, but nothing may be told otherwise.
        told_here = {key: seen.get(key, ours[key]) for key in ours}
        compare_mappings("checksum", ours, told_here, found, **at)
    return len(told)


class _Totals:
    """What a table adds up to at each version."""

    def __init__(self, store: Store, table_id: int, last: int) -> None:
        at: dict[str, Any] = {"table_id": table_id, "last": last}
        self._changes: dict[int, tuple[int, int]] = {}
        for sign, name in ((1, "added_per_version"), (-1, "ended_per_version")):
            for version, count, size in store.query(name, **at):
                files, total = self._changes.get(version, (0, 0))
                self._changes[version] = (files + sign * count, total + sign * int(size))
        self._ordered = sorted(self._changes)
        rows = store.query("metadata_between", after=-1, **at)
        self._metadata = [(row[0], metadata_from_row(row)) for row in rows]
        rows = store.query("protocol_between", after=-1, **at)
        self._protocols = [(row[0], protocol_from_row(row)) for row in rows]
        rows = store.query("txns_between", after=-1, **at)
        self._txns = [(row[0], row[1], txn_from_row(row[1:])) for row in rows]
        rows = store.query("domains_between", after=-1, **at)
        self._domains = [(row[0], row[1], domain_from_row(row[1:])) for row in rows]
        self._done, self._files, self._bytes = 0, 0, 0

    def at(self, version: int) -> dict[str, Any]:
        """Return the totals of a version; asked in ascending order."""
        while self._done < len(self._ordered) and self._ordered[self._done] <= version:
            files, size = self._changes[self._ordered[self._done]]
            self._files, self._bytes = self._files + files, self._bytes + size
            self._done += 1
        return {
            "numFiles": self._files,
            "tableSizeBytes": self._bytes,
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": _in_force(self._metadata, version),
            "protocol": _in_force(self._protocols, version),
            "setTransactions": _latest(self._txns, version),
            "domainMetadata": {
                name: body
                for name, body in _latest(self._domains, version).items()
                if not body["removed"]
            },
        }


def _in_force(updates: Sequence[tuple[int, Action]], version: int) -> dict[str, Any]:
    return [action for since, action in updates if since <= version][-1].body()


def _latest(updates: Sequence[tuple[int, str, Action]], version: int) -> dict[str, Any]:
    return {name: action.body() for since, name, action in updates if since <= version}
