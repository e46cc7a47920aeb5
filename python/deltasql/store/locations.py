"""Insert and drop tables; reject a location that is shared with another table or nested in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TableExistsError, TxnLogError
from deltasql.model.clock import now_ms
from deltasql.storage.location import keys_above, location_key, location_keys
from deltasql.store import audit
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.store.dialect import Row, Session

    Query = Callable[..., list[Row]]

ALLOW_NESTED = "allow_nested_location"


def tables_at(query: Query, location: str) -> list[TableRow]:
    """Return the tables at a location, however it is written; live tables come first."""
    rows = query("tables_at", location_keys=location_keys(location))
    return [TableRow.from_row(row) for row in rows]


def tables_around(query: Query, location: str) -> list[TableRow]:
    """Return the live tables whose locations contain this location."""
    above = keys_above(location_key(location))
    rows = query("tables_at", location_keys=above) if above else []
    found = (TableRow.from_row(row) for row in rows)
    return [table for table in found if table.dropped_at_ms is None]


def keys_inside(query: Query, location: str) -> list[str]:
    """Return the location keys of the tables inside a location, including dropped tables."""
    return [row[0] for row in query("location_keys_inside", **_inside(location_key(location)))]


def reject_shared_location(
    query: Query, location: str, *, allow_nested: bool, also_dropped: bool = True
) -> None:
    """Raise if another table uses the location or, without `allow_nested`, one in or above it.

    Raises:
        TableExistsError: It names the other table and its location.
    """
    for other in tables_at(query, location):
        if also_dropped or other.dropped_at_ms is None:
            raise shared_location(other, location)
    if not allow_nested:
        reject_nested_location(query, location)
    reject_replica(query, location, allow_nested=allow_nested)


def reject_replica(query: Query, location: str, *, allow_nested: bool) -> None:
    """Raise if a replica is at the location or, without `allow_nested`, in or above it.

    Raises:
        TableExistsError: It names the table that is replicated, and the folder of the replica.
    """
    key = location_key(location)
    for namespace, name, place in query("replicas"):
        other = location_key(place)
        is_nested = other.startswith(key) or key.startswith(other)
        if other == key or (is_nested and not allow_nested):
            table = join_table_name(namespace, name)
            raise TableExistsError(
                f"{location} cannot be used: table {table} is replicated to {place}",
                table=table,
                help="Give each table a location of its own. To stop the replication, use "
                "catalog.mirror.remove_target() or `deltasql mirror targets remove`.",
            )


def reject_nested_location(query: Query, location: str) -> None:
    """Raise if the location is inside that of a live table, or contains one."""
    inside = query("live_tables_inside", **_inside(location_key(location)))
    around = tables_around(query, location)
    others = [(TableRow.from_row(row), "holds") for row in inside[:1]]
    others += [(table, "lies inside") for table in around[:1]]
    for other, how in others:
        name = join_table_name(other.namespace, other.name)
        raise TableExistsError(
            f"{location} {how} the folder of table {name}: {other.location}",
            table=name,
            help="Give each table a folder of its own. To allow one folder inside the other, pass "
            f"{ALLOW_NESTED}=True (--allow-nested-location), or set table.{ALLOW_NESTED}.",
        )


def shared_location(other: TableRow, location: str) -> TableExistsError:
    """Return the error for a location that another table uses."""
    name = join_table_name(other.namespace, other.name)
    place = f"{location} already"
    if other.location != location:
        place += f", under the path {other.location}"
    return TableExistsError(
        f"table {name} has its files at {place}",
        table=name,
        help="Give each table a location of its own. A dropped table keeps its location.",
    )


def insert_table(session: Session, table: TableRow) -> TableRow:
    """Insert the rows of a new table and of its location; return the table with its id."""
    rows = session.query(
        "insert_table",
        table_uuid=table.table_uuid,
        namespace=table.namespace,
        name=table.name,
        live_name=table.live_name,
        location=table.location,
        created_at_ms=table.created_at_ms,
        properties="{}",
    )
    key = location_key(table.location)
    session.insert("insert_location", [(rows[0][0], key, key)])
    return replace(table, table_id=rows[0][0])


def drop_table(session: Session, table_id: int) -> None:
    """Mark a table as dropped, so that its name and its location can be used again."""
    session.execute("drop_table", table_id=table_id, dropped_at_ms=now_ms())
    session.execute("leave_location", table_id=table_id)
    audit.record(session, table_id)


def record_locations(session: Session) -> int:
    """Insert or correct the location keys that an older release did not write; return their number.

    Earlier releases accepted several live tables at one location. In this case the oldest table
    gets the unique key, and `doctor` reports the others.
    """
    found = session.query("unrecorded_locations")
    taken = {key for *_, key in session.query("live_location_keys") if key} if found else set()
    rows: list[Row] = []
    for table_id, location, dropped_at_ms, known_key in found:
        if known_key:
            session.execute("leave_location", table_id=table_id)
            continue
        try:
            key = location_key(location)
        except TxnLogError:  # a location that this release does not accept
            key = f"{location.rstrip('/')}/"
        is_live = dropped_at_ms is None and key not in taken
        rows.append((table_id, key, key if is_live else None))
        if is_live:
            taken.add(key)
    if rows:
        session.insert("insert_location", rows)
    return len(found)


def _inside(key: str) -> dict[str, str]:
    # Keys end with a slash. "0" is the character after the slash, so it ends the range of keys
    # inside.
    return {"location_key": key, "end_key": f"{key[:-1]}0"}
