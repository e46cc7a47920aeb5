"""Version checksums: `<v>.crc` tells what a version adds up to, so that a reader can check itself.

The totals of a table are remembered and moved on by what a commit changed. SQL is asked for the
sum over all files only when neither this process nor the log knows the version before.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from deltasql import _core
from deltasql.mirror.log.encode import commit_file
from deltasql.model.json_text import load_json
from deltasql.model.properties import TableProperties
from deltasql.store.records import Head, VersionRow, domain_from_row, txn_from_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# A longer list of transactions or domains would make every checksum long: it is left out then.
LONGEST_LIST = 100
# Of a longer commit file, the files are counted by SQL instead of being parsed.
LONGEST_PARSE = 1_000_000
_FILES = re.compile(rb'\n\{"(?:add|remove|cdc)":')
_FACTS = re.compile(rb'\n\{"(?:commitInfo|protocol|metaData|txn|domainMetadata)":')
FileTotals = tuple[int, int]  # how many files, of how many bytes
Body = dict[str, Any]
Bodies = dict[str, Body]


def checksum_file(version: int) -> str:
    """Return the name of a version's checksum.

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
) -> Totals:
    """Write the checksum of a published version; `data` are the bytes of its commit file.

    `replaces_nothing` says that the commit adds no file which was there already; otherwise SQL
    is asked.
    """
    key = (table.table_id, storage.location)
    before = _recall(store, key)
    if before is not None and before.version == version:
        totals = before
    else:
        commit, added = _read(store, table, version, data or storage.read(commit_file(version)))
        if before is None or before.version != version - 1:
            before = _totals_before(store, table, storage, version)
        ended = (0, 0)
        if not replaces_nothing or commit.removes:
            ended = _ended(store, table, version)
        totals = before.after(commit, added, ended)
    name, text = checksum_file(version), totals.to_json()
    # A new name costs less than a replacement; what is there may be of a rejected commit.
    # Readers do without a checksum: its name need not survive a power loss by itself.
    if not storage.put_if_absent(name, text, flush_folder=False):
        storage.put(name, text, flush_folder=False)
    _remember(store, key, totals)
    return totals


def totals_at(store: Store, table: TableRow, version: int) -> Totals:
    """Return what a version adds up to, by all that SQL has of it."""
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    row = VersionRow.from_row(rows[0])
    totals = _from_sql(store, table, row)
    return replace(totals, in_commit_timestamp=row.info.in_commit_timestamp)


def totals_after(store: Store, table: TableRow, before: Totals, data: bytes) -> Totals:
    """Return what the next version adds up to, by the bytes of its commit file."""
    version = before.version + 1
    commit, added = _read(store, table, version, data)
    return before.after(commit, added, _ended(store, table, version))


@dataclass(frozen=True)
class TableFacts:
    """What seldom changes from one version to the next; a list that is None is not told."""

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
        """The members of the checksum, without the braces."""
        expires = TableProperties(self.configuration).set_transaction_retention is not None
        # Whether a transaction has expired depends on the clock of who looks: not told then.
        lists = {"setTransactions": None if expires else self.txns, "domainMetadata": self.domains}
        told = {k: list(v.values()) for k, v in lists.items() if v is not None}
        return _dumps({**told, "metadata": self.metadata, "protocol": self.protocol})[1:-1]

    def after(self, commit: _core.Commit) -> TableFacts:
        """Return the facts that hold after a commit, the same object when it changes none."""
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
class Totals:
    """What one version adds up to."""

    version: int
    txn_id: str | None
    in_commit_timestamp: int | None
    num_files: int
    size_bytes: int
    facts: TableFacts

    def to_json(self) -> bytes:
        """Return the content of the checksum file."""
        txn_id = "" if self.txn_id is None else f'"txnId":{json.dumps(self.txn_id)},'
        moment = self.in_commit_timestamp
        timestamp = "" if moment is None else f'"inCommitTimestampOpt":{moment},'
        return (
            f'{{{txn_id}"tableSizeBytes":{self.size_bytes},"numFiles":{self.num_files},'
            f'"numMetadata":1,"numProtocol":1,{timestamp}{self.facts.json}}}'
        ).encode()

    def after(self, commit: _core.Commit, added: FileTotals, ended: FileTotals) -> Totals:
        """Return the totals of the next version: its commit, and the files it added and ended."""
        info = commit.commit_info
        return Totals(
            version=self.version + 1,
            txn_id=info.txn_id if info else None,
            in_commit_timestamp=info.in_commit_timestamp if info else None,
            num_files=self.num_files + added[0] - ended[0],
            size_bytes=self.size_bytes + added[1] - ended[1],
            facts=self.facts.after(commit),
        )


# Without a lock, which a fork could leave locked: whoever forgets a version asks the log for it.
_known: WeakKeyDictionary[Store, dict[tuple[int, str], Totals]] = WeakKeyDictionary()


def _recall(store: Store, key: tuple[int, str]) -> Totals | None:
    return _known.setdefault(store, {}).get(key)


def _remember(store: Store, key: tuple[int, str], totals: Totals) -> None:
    of_store = _known.setdefault(store, {})
    before = of_store.get(key)
    if before is None or before.version < totals.version:
        of_store[key] = totals


def _read(
    store: Store, table: TableRow, version: int, data: bytes
) -> tuple[_core.Commit, FileTotals]:
    """Return a commit and what it adds; a long one only as far as it tells of no files."""
    files = _FILES.search(data) if len(data) > LONGEST_PARSE else None
    if files is not None and _FACTS.search(data, files.end()) is None:
        rows = store.query("added_totals", table_id=table.table_id, version=version)
        commit = _core.parse_commit(data[: files.start()], version=version)
        return commit, (int(rows[0][0]), int(rows[0][1]))
    commit = _core.parse_commit(data, version=version)
    adds = commit.adds
    return commit, (len(adds), sum(add.size for add in adds))


def _ended(store: Store, table: TableRow, version: int) -> FileTotals:
    """Ask what a version took out, which includes a file that it adds once more."""
    rows = store.query("ended_totals", table_id=table.table_id, version=version)
    return int(rows[0][0]), int(rows[0][1])


def _totals_before(store: Store, table: TableRow, storage: Storage, version: int) -> Totals:
    """Find out the totals of the version before, which this process does not remember."""
    rows = store.query(
        "history", table_id=table.table_id, first=version - 1, last=version - 1, limit=1
    )
    if not rows:  # this version is the first that SQL has
        return Totals(version - 1, None, None, 0, 0, TableFacts())
    before = VersionRow.from_row(rows[0])
    return _from_log(storage, before) or _from_sql(store, table, before)


def _from_log(storage: Storage, row: VersionRow) -> Totals | None:
    """Take over the checksum in the log, if it is one of the commit that SQL knows."""
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
        return Totals(
            row.version, row.txn_id, None, int(body["numFiles"]), int(body["tableSizeBytes"]), facts
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _from_sql(store: Store, table: TableRow, row: VersionRow) -> Totals:
    """Add up every live file: once, when nobody knows."""
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
    return Totals(row.version, row.txn_id, None, int(files), int(size), facts)


def _by_name(bodies: list[Body] | None, key: str) -> Bodies | None:
    return None if bodies is None else {body[key]: body for body in bodies}


def _merged(known: Bodies | None, new: Mapping[str, Body | None]) -> Bodies | None:
    """Put new bodies in the place of old ones; None takes one away."""
    if known is None or not new:
        return known
    merged = {name: body for name, body in {**known, **new}.items() if body is not None}
    return merged if len(merged) <= LONGEST_LIST else None


def _dumps(value: Body) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
