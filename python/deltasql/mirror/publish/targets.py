"""Where commits are published to: the table's own location, replicas of it, views over it.

A replica is a second place with the same log and the data files it names. A view shows only the
newest version, so those between are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError, TxnLogMirrorError
from deltasql.model.clock import now_ms
from deltasql.storage import absolute_location
from deltasql.storage.location import location_key
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from typing import Any

    from deltasql.config import Config
    from deltasql.store.dialect import Row, Session
    from deltasql.store.store import Store

OWN = "table"  # the target at the table's own location
DELTA, DUCKDB = "delta", "duckdb"
ACTIVE, FAILED, QUARANTINED = "ACTIVE", "FAILED", "QUARANTINED"
DAMAGED = "DAMAGED"  # told, never stored: files of the log are missing or damaged
FOLLOWING = "FOLLOWING"  # the log belongs to others: it is read, nothing is published there


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """One place a table is published to, and how far it got."""

    table: TableRow
    name: str
    kind: str
    location: str
    published_version: int  # -1: nothing yet
    further_targets: int  # at the table's own target: how many others there are
    state: str
    attempts: int  # that failed since the last success
    next_attempt_ms: int
    last_error: str | None
    claimed_by: str | None
    claimed_until_ms: int
    head_version: int
    waiting_since_ms: int | None  # when the oldest unpublished version was committed
    has_row: bool  # False: a table at whose own location nothing was ever tried

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
        """How many ratified versions are not published."""
        return max(0, self.head_version - self.published_version)

    def lag_ms(self, at_ms: int) -> int:
        """The age of the oldest version that is not published."""
        since = self.waiting_since_ms
        return max(0, at_ms - since) if since is not None and self.pending else 0


def targets_of(store: Store, table: TableRow) -> list[PublishTarget]:
    """Return every target of a table, its own first."""
    rows = store.query("targets_of", table_id=table.table_id)
    return [PublishTarget.from_row(row) for row in rows]


def named(targets: Iterable[PublishTarget], name: str) -> PublishTarget:
    """Return the target of a name among those of one table."""
    found = list(targets)
    for each in found:
        if each.name == name:
            return each
    raise TxnLogMirrorError(
        f"there is no target {name!r}",
        table=found[0].table.full_name if found else None,
        help=f"There are: {', '.join(each.name for each in found)}.",
    )


def moved(target: PublishTarget, versions: int) -> PublishTarget:
    """Return a target as it is after so many more versions were published."""
    return replace(target, published_version=target.published_version + versions)


def all_targets(store: Store) -> list[PublishTarget]:
    """Return every target of every table, of dropped ones while something is left to publish."""
    return [PublishTarget.from_row(row) for row in store.query("targets_of_all")]


def insert_target(
    session: Session, table: TableRow, name: str, kind: str = DELTA, location: str | None = None
) -> None:
    """Add the row of a target at which nothing is published yet."""
    row = (table.table_id, name, kind, location, now_ms(), -1, 0, ACTIVE, 0, 0, None, None, 0)
    session.insert("insert_mirror_target", [row])


def add_target(store: Store, table: TableRow, name: str, location: str, kind: str = DELTA) -> None:
    """Publish a table to another place too, from its first version on."""
    if kind not in (DELTA, DUCKDB):
        raise TxnLogConfigError(
            f"no target is of the kind {kind!r}", allowed=f"{DELTA}, {DUCKDB}", help="Choose one."
        )
    place = absolute_location(location)
    known = targets_of(store, table)
    names = {OWN, *(target.name for target in known)}
    # Views of many tables share a file; a log has its folder for itself.
    logs = [*known, *(each for each in all_targets(store) if kind == DELTA)]
    taken = {location_key(target.location) for target in logs}
    if name in names or location_key(place) in taken:
        raise TxnLogMirrorError(
            f"{table.full_name} cannot get a target {name!r} at {place}: "
            f"{'the name' if name in names else 'the place'} is taken",
            table=table.full_name,
            location=place,
            help="Choose another name and place, or remove the target that is there.",
        )
    first = store.query("version_bounds", table_id=table.table_id)[0][0]
    if kind == DELTA and first:
        raise TxnLogMirrorError(
            f"{table.full_name} cannot be replicated: its log begins at version {first}",
            table=table.full_name,
            location=place,
            help="Copy the table by a clone or an export instead.",
        )
    with store.change() as (session, _):
        insert_target(session, table, OWN)
        insert_target(session, table, name, kind, place)
        session.execute("count_further_targets", table_id=table.table_id)


def remove_target(store: Store, table: TableRow, name: str) -> None:
    """Publish no more to a further target; what lies there stays."""
    if name == OWN:
        raise TxnLogMirrorError(
            f"the own target of {table.full_name} cannot be removed",
            table=table.full_name,
            help="Turn the mirror off (mirror.mode) to publish nothing.",
        )
    with store.change() as (session, _):
        key: dict[str, Any] = {"table_id": table.table_id, "target": name}
        if not session.execute("delete_mirror_target", **key):
            raise TxnLogMirrorError(
                f"{table.full_name} has no target {name!r}",
                table=table.full_name,
                help="catalog.mirror.targets(), or `deltasql mirror targets list`, lists them.",
            )
        session.execute("delete_mirror_statuses", **key, first=0)
        session.execute("count_further_targets", table_id=table.table_id)


def catalog_key(location: str) -> str:
    """Return the key under which the catalog remembers a DuckDB file that shows all tables."""
    return f"duckdb_catalog:{location}"


def _publish_duckdb(
    store: Store, table: TableRow, location: str, version: int, config: Config
) -> None:
    from deltasql.mirror.duckdb.catalog import publish_view  # DuckDB is an extra

    publish_view(store, table, location, version, config)


# How a kind of target that shows only the newest version is brought up to it.
VIEWS: dict[str, Callable[[Store, TableRow, str, int, Config], None]] = {DUCKDB: _publish_duckdb}
