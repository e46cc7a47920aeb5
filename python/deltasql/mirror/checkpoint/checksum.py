"""Version checksums: `<version>.crc` has the totals of a version, so that readers can check them.

The totals of a table are cached and updated with each commit. The database sums up all files only
if neither this process nor the log has the totals of the previous version.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from deltasql import _core
from deltasql.mirror.log.encode import commit_file, version_row
from deltasql.model.json_text import load_json
from deltasql.model.properties import TableProperties
from deltasql.store.records import Head, domain_from_row, txn_from_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow, VersionRow
    from deltasql.store.store import Store

# Lists of more transactions or domains are left out, to keep checksum files small.
LONGEST_LIST = 100
# If a commit file has more bytes, its added files are counted by the database instead of parsed.
LONGEST_PARSE = 1_000_000
_FILES = re.compile(rb'\n\{"(?:add|remove|cdc)":')
_FACTS = re.compile(rb'\n\{"(?:commitInfo|protocol|metaData|txn|domainMetadata)":')
FileTotals = tuple[int, int]  # number of files, bytes
Body = dict[str, Any]
Bodies = dict[str, Body]


def checksum_file(version: int) -> str:
    """Return the name of the checksum file of a version.

    >>> checksum_file(7)
    '_delta_log/00000000000000000007.crc'
    """
    return f"_delta_log/{version:020d}.crc"


def write_checksum(
    store: Store,
    table: TableRow,
    storage: Storage,
    version: int,
    data: bytes | None = None,
    *,
    replaces_nothing: bool = False,
) -> Checksum:
    """Write the checksum file of a published version; `data` is the content of its commit file.

    With `replaces_nothing`, none of the files that the commit adds was live before. Otherwise the
    database is asked which of them replace a live file.
    """
    key = (table.table_id, storage.location)
    before = _cached(store, key)
    if before is not None and before.version == version:
        checksum = before
    else:
        commit, added = _read(store, table, version, data or storage.read(commit_file(version)))
        if before is None or before.version != version - 1:
            before = _checksum_before(store, table, storage, version)
        removed = (0, 0)
        if not replaces_nothing or commit.removes:
            removed = _removed_totals(store, table, version)
        checksum = before.after(commit, added, removed)
    name, text = checksum_file(version), checksum.to_json()
    # Creating a file is cheaper than replacing one. An existing file may belong to a rejected
    # commit, so it is replaced. The folder is not flushed, because readers work without a checksum.
    if not storage.put_if_absent(name, text, flush_folder=False):
        storage.put(name, text, flush_folder=False)
    _cache(store, key, checksum)
    return checksum


def checksum_at(store: Store, table: TableRow, version: int) -> Checksum:
    """Return the checksum of a version, computed by the database."""
    row = version_row(store, table.table_id, version)
    assert row is not None
    checksum = _from_sql(store, table, row)
    return replace(checksum, in_commit_timestamp=row.info.in_commit_timestamp)


def checksum_after(store: Store, table: TableRow, before: Checksum, data: bytes) -> Checksum:
    """Return the checksum of the next version, from the content of its commit file."""
    version = before.version + 1
    commit, added = _read(store, table, version, data)
    return before.after(commit, added, _removed_totals(store, table, version))


@dataclass(frozen=True)
class TableFacts:
    """The parts of a checksum that rarely change. If a list is None, the checksum omits it."""

    metadata: Body = field(default_factory=dict)
    protocol: Body = field(default_factory=dict)
    txns: Bodies | None = field(default_factory=dict)
    domains: Bodies | None = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        """The properties of the table."""
        return self.metadata.get("configuration") or {}

    @cached_property
    def json(self) -> str:
        """The JSON members of the checksum, without braces."""
        expires = TableProperties(self.configuration).set_transaction_retention is not None
        # Whether a transaction has expired depends on the reader's clock, so the list is left out
        # if transactions can expire.
        lists = {"setTransactions": None if expires else self.txns, "domainMetadata": self.domains}
        known = {k: list(v.values()) for k, v in lists.items() if v is not None}
        return _dumps({**known, "metadata": self.metadata, "protocol": self.protocol})[1:-1]

    def after(self, commit: _core.Commit) -> TableFacts:
        """Return the facts after a commit; return `self` if the commit changes none of them."""
        txns, domains = commit.txns, commit.domain_metadata
        metadata, protocol = commit.metadata, commit.protocol
        if not (txns or domains or metadata or protocol):
            return self
        return TableFacts(
            metadata=metadata.body() if metadata else self.metadata,
            protocol=protocol.body() if protocol else self.protocol,
            txns=_merged(self.txns, {each.app_id: each.body() for each in txns}),
            domains=_merged(
                self.domains, {d.domain: None if d.removed else d.body() for d in domains}
            ),
        )


@dataclass(frozen=True, slots=True)
class Checksum:
    """The content of a checksum file: the totals of one version."""

    version: int
    txn_id: str | None
    in_commit_timestamp: int | None
    num_files: int
    size_bytes: int
    facts: TableFacts

    def to_json(self) -> bytes:
        """Return the content of the checksum file."""
        txn_id = "" if self.txn_id is None else f'"txnId":{json.dumps(self.txn_id)},'
        time_ms = self.in_commit_timestamp
        timestamp = "" if time_ms is None else f'"inCommitTimestampOpt":{time_ms},'
        return (
            f'{{{txn_id}"tableSizeBytes":{self.size_bytes},"numFiles":{self.num_files},'
            f'"numMetadata":1,"numProtocol":1,{timestamp}{self.facts.json}}}'
        ).encode()

    def after(self, commit: _core.Commit, added: FileTotals, removed: FileTotals) -> Checksum:
        """Return the checksum after a commit that adds and removes files with these totals."""
        info = commit.commit_info
        return Checksum(
            version=self.version + 1,
            txn_id=info.txn_id if info else None,
            in_commit_timestamp=info.in_commit_timestamp if info else None,
            num_files=self.num_files + added[0] - removed[0],
            size_bytes=self.size_bytes + added[1] - removed[1],
            facts=self.facts.after(commit),
        )


# There is no lock here, because a fork could leave it locked. If an update is lost, the checksum is
# read from the log again.
_checksums: WeakKeyDictionary[Store, dict[tuple[int, str], Checksum]] = WeakKeyDictionary()


def _cached(store: Store, key: tuple[int, str]) -> Checksum | None:
    return _checksums.setdefault(store, {}).get(key)


def _cache(store: Store, key: tuple[int, str], checksum: Checksum) -> None:
    of_store = _checksums.setdefault(store, {})
    before = of_store.get(key)
    if before is None or before.version < checksum.version:
        of_store[key] = checksum


def _read(
    store: Store, table: TableRow, version: int, data: bytes
) -> tuple[_core.Commit, FileTotals]:
    """Parse a commit and sum up the files it adds.

    For a large commit, only the other actions are parsed, and the database sums up the files.
    """
    files = _FILES.search(data) if len(data) > LONGEST_PARSE else None
    if files is not None and _FACTS.search(data, files.end()) is None:
        rows = store.query("added_totals", table_id=table.table_id, version=version)
        commit = _core.parse_commit(data[: files.start()], version=version)
        return commit, (int(rows[0][0]), int(rows[0][1]))
    commit = _core.parse_commit(data, version=version)
    adds = commit.adds
    return commit, (len(adds), sum(add.size for add in adds))


def _removed_totals(store: Store, table: TableRow, version: int) -> FileTotals:
    """Return the totals of the files that a version removes, even if it also adds them again."""
    rows = store.query("ended_totals", table_id=table.table_id, version=version)
    return int(rows[0][0]), int(rows[0][1])


def _checksum_before(store: Store, table: TableRow, storage: Storage, version: int) -> Checksum:
    """Return the checksum of the previous version, from the log or from the database."""
    before = version_row(store, table.table_id, version - 1)
    if before is None:  # this is the first version in the database
        return Checksum(version - 1, None, None, 0, 0, TableFacts())
    return _from_log(storage, before) or _from_sql(store, table, before)


def _from_log(storage: Storage, row: VersionRow) -> Checksum | None:
    """Return the checksum in the log; None if it is for another commit than the database has."""
    try:
        body = load_json(storage.read(checksum_file(row.version)))
        if body["txnId"] != row.txn_id:
            return None
        facts = TableFacts(
            body["metadata"],
            body["protocol"],
            _by_name(body.get("setTransactions"), "appId"),
            _by_name(body.get("domainMetadata"), "domain"),
        )
        return Checksum(
            row.version, row.txn_id, None, int(body["numFiles"]), int(body["tableSizeBytes"]), facts
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _from_sql(store: Store, table: TableRow, row: VersionRow) -> Checksum:
    """Compute the checksum from all live files in the database."""
    at = {"table_id": table.table_id, "version": row.version}
    files, size = store.query("size_totals", **at)[0]
    head = Head(*store.query("head_at_version", **at)[0])
    txns = [txn_from_row(each) for each in store.query("txn_versions", **at)]
    domains = [domain_from_row(each) for each in store.query("domains_at", **at)]
    facts = TableFacts(
        store.metadata(table.table_id, head.metadata_version).body(),
        store.protocol(table.table_id, head.protocol_version).body(),
        _merged({}, {each.app_id: each.body() for each in txns}),
        _merged({}, {each.domain: None if each.removed else each.body() for each in domains}),
    )
    return Checksum(row.version, row.txn_id, None, int(files), int(size), facts)


def _by_name(bodies: list[Body] | None, key: str) -> Bodies | None:
    return None if bodies is None else {body[key]: body for body in bodies}


def _merged(known: Bodies | None, new: Mapping[str, Body | None]) -> Bodies | None:
    """Return the known actions by key, updated by the new ones; None if there are too many.

    If the new body of an action is None, the action is removed.
    """
    if known is None or not new:
        return known
    merged = {name: body for name, body in {**known, **new}.items() if body is not None}
    return merged if len(merged) <= LONGEST_LIST else None


def _dumps(value: Body) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
