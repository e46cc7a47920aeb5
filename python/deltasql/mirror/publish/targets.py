"""Publish targets of tables: the table's own location, replicas and DuckDB catalog files.

A replica is a second location with the same log and copies of the data files. A DuckDB catalog file
has views of the latest versions only, so the versions before them are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError, TxnLogMirrorError
from deltasql.model.clock import now_ms
from deltasql.storage import absolute_location
from deltasql.storage.location import location_key
from deltasql.store.locations import reject_nested_location, reject_replica, tables_at
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from deltasql.store.dialect import Row, Session
    from deltasql.store.store import Store

OWN = "table"  # the target at the table's own location
DELTA, DUCKDB = "delta", "duckdb"
ACTIVE, FAILED, QUARANTINED = "ACTIVE", "FAILED", "QUARANTINED"
DAMAGED = "DAMAGED"  # log files are missing or damaged; only reported, never stored
FOLLOWING = "FOLLOWING"  # another program writes the log; nothing is published to it


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """A place that a table is published to, and its published version."""

    table: TableRow
    name: str
    kind: str
    location: str
    published_version: int  # -1 before the first version
    further_targets: int  # number of other targets; set only for the table's own location
    state: str
    attempts: int  # failed attempts since the last success
    next_attempt_ms: int
    last_error: str | None
    claimed_by: str | None
    claimed_until_ms: int
    head_version: int
    waiting_since_ms: int | None  # commit time of the oldest unpublished version
    has_row: bool  # False for an own location to which nothing was published yet

    @classmethod
    def from_row(cls, row: Row) -> PublishTarget:
        return cls(*(TableRow.from_row(row[:8]), *row[8:21], row[21] is not None))

    @property
    def is_own(self) -> bool:
        return self.name == OWN

    @property
    def is_quarantined(self) -> bool:
        return self.state == QUARANTINED

    @property
    def pending(self) -> int:
        """The number of ratified versions that are not published."""
        return max(0, self.head_version - self.published_version)

    def lag_ms(self, at_ms: int) -> int:
        """The age of the oldest version that is not published, in milliseconds."""
        since = self.waiting_since_ms
        return max(0, at_ms - since) if since is not None and self.pending else 0


def targets_of(store: Store, table: TableRow) -> list[PublishTarget]:
    """Return every target of a table, its own first."""
    rows = store.query("targets_of", table_id=table.table_id)
    return [PublishTarget.from_row(row) for row in rows]


def named(targets: Iterable[PublishTarget], name: str) -> PublishTarget:
    """Return the target with a name among the targets of one table."""
    found = list(targets)
    for each in found:
        if each.name == name:
            return each
    raise TxnLogMirrorError(
        f"there is no target {name!r}",
        table=found[0].table.full_name if found else None,
        help=f"The targets of this table are: {', '.join(each.name for each in found)}.",
    )


def advanced(target: PublishTarget, versions: int) -> PublishTarget:
    """Return a copy of a target with a later published version."""
    return replace(target, published_version=target.published_version + versions)


def all_targets(store: Store) -> list[PublishTarget]:
    """Return the targets of all tables; of a dropped table, only targets that lack versions."""
    return [PublishTarget.from_row(row) for row in store.query("targets_of_all")]


def insert_target(
    session: Session, table: TableRow, name: str, kind: str = DELTA, location: str | None = None
) -> None:
    """Insert the row of a target without published versions."""
    row = (table.table_id, name, kind, location, now_ms(), -1, 0, ACTIVE, 0, 0, None, None, 0)
    session.insert("insert_mirror_target", [row])


def add_target(
    store: Store,
    table: TableRow,
    name: str,
    location: str,
    kind: str = DELTA,
    *,
    allow_nested: bool = False,
) -> None:
    """Add a target to a table; the publisher then writes all versions to it, from the first one.

    The folder of a replica must not be the location of a table, even of a dropped one. With
    `allow_nested`, the folder may be inside the folder of a table, or contain one.
    """
    if kind not in (DELTA, DUCKDB):
        raise TxnLogConfigError(
            f"unknown target kind {kind!r}",
            allowed=f"{DELTA}, {DUCKDB}",
            help=f"Use {DELTA!r} or {DUCKDB!r}.",
        )
    place = absolute_location(location)
    known = targets_of(store, table)
    names = {OWN, *(target.name for target in known)}
    # Tables can share a DuckDB file, but each log needs a folder of its own.
    logs = [*known, *(each for each in all_targets(store) if kind == DELTA)]
    taken = {location_key(target.location) for target in logs}
    if kind == DELTA:  # a dropped table keeps its location
        taken |= {location_key(table.location) for table in tables_at(store.query, place)}
    if name in names or location_key(place) in taken:
        raise TxnLogMirrorError(
            f"cannot add target {name!r} at {place} to {table.full_name}: "
            f"{'the name' if name in names else 'the location'} is already in use",
            table=table.full_name,
            location=place,
            help="Choose another name and location, or remove the target that uses them.",
        )
    if kind == DELTA and not allow_nested:
        reject_nested_location(store.query, place)
        reject_replica(store.query, place, allow_nested=False)
    # The head is locked, so that no version expires before the target is recorded.
    with store.change([table.table_id]) as (session, _):
        first = session.query("version_bounds", table_id=table.table_id)[0][0]
        if kind == DELTA and first:
            raise TxnLogMirrorError(
                f"{table.full_name} cannot be replicated: its log begins at version {first}, and a "
                "replica needs the whole log",
                table=table.full_name,
                location=place,
                help="Clone or export the table instead.",
            )
        insert_target(session, table, OWN)
        insert_target(session, table, name, kind, place)
        session.execute("count_further_targets", table_id=table.table_id)


def remove_target(store: Store, table: TableRow, name: str) -> None:
    """Stop publishing a table to a target other than its own; the target's files stay."""
    if name == OWN:
        raise TxnLogMirrorError(
            f"the table's own target of {table.full_name} cannot be removed",
            table=table.full_name,
            help='Set mirror.mode to "off" to publish nothing.',
        )
    with store.change() as (session, _):
        key: dict[str, Any] = {"table_id": table.table_id, "target": name}
        if not session.execute("delete_mirror_target", **key):
            raise TxnLogMirrorError(
                f"{table.full_name} has no target {name!r}",
                table=table.full_name,
                help="catalog.mirror.targets() and `deltasql mirror targets list` list the "
                "targets.",
            )
        session.execute("delete_mirror_statuses", **key, first=0)
        session.execute("count_further_targets", table_id=table.table_id)


def catalog_key(location: str) -> str:
    """Return the key of a DuckDB catalog file that shows all tables, in the catalog's settings."""
    return f"duckdb_catalog:{location}"


def add_catalog_file(
    store: Store,
    location: str,
    tables: Collection[TableRow] | None,
    shown: Mapping[int, int],
) -> None:
    """Publish tables to a DuckDB catalog file; None means all tables, including future ones.

    `shown` maps table ids to the versions that the file already shows.
    """
    name = f"{DUCKDB}:{location}"
    with store.change() as (session, _):
        session.execute("delete_catalog_target", key=catalog_key(location))
        session.execute("delete_view_targets", location=location)
        if tables is None:
            session.insert("insert_catalog_target", [(catalog_key(location), location)])
            insert_missing_targets(session)
        for table in tables or ():
            insert_target(session, table, OWN)
            insert_target(session, table, name, DUCKDB, location)
        for table_id, version in shown.items():
            session.execute(
                "set_published_version", table_id=table_id, target=name, version=version
            )
        session.execute("count_all_further_targets")


def insert_missing_targets(session: Session) -> None:
    """Insert missing targets: tables' own locations, and DuckDB files that show all tables."""
    # Insert the rows of own locations first: without its own row, a table's first target would be
    # a DuckDB file, and the first target is used as the table's own location.
    session.execute("add_missing_targets")
    if session.execute("add_missing_views", prefix=catalog_key(""), now_ms=now_ms()):
        session.execute("count_all_further_targets")
