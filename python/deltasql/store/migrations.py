"""Bring a database to the schema this release speaks: numbered, checksummed, all or nothing."""

from __future__ import annotations

import hashlib
import re
import time
from functools import cache
from typing import TYPE_CHECKING

from deltasql.exceptions import MigrationError, SchemaVersionError, TxnLogError
from deltasql.storage.location import location_key
from deltasql.store.dialect import Fault
from deltasql.store.statements import migration_files

if TYPE_CHECKING:
    from deltasql.store.dialect import Dialect, Row, Session

_LOCATION_KEYS = 4
_TOKEN = re.compile(r"\{(\w+)\}")

_CREATE_LEDGER = """
CREATE TABLE IF NOT EXISTS dl_migrations (
  version {bigint} PRIMARY KEY,
  name {text} NOT NULL,
  checksum {text} NOT NULL,
  applied_at_ms {bigint} NOT NULL
){strict}
"""


def latest_version() -> int:
    """Return the schema version this release speaks."""
    return migration_files()[-1][0]


def migrate(dialect: Dialect, *, up_to: int | None = None) -> list[int]:
    """Apply what is missing and return the numbers applied; refuse a newer or altered schema."""
    with dialect.write_turn(), dialect.session() as session:
        if up_to is None and _is_current(dialect.ledger(session)):
            return []
        session.begin(is_bulk=True)
        # Two processes may open a fresh catalog at once: the second waits here, then finds it done.
        session.query("lock_schema")
        session.script(render(_CREATE_LEDGER, dialect))
        applied: dict[int, str] = dict(session.query("applied_migrations"))
        _check(applied)
        done = []
        for number, name, text in migration_files():
            if number in applied or (up_to is not None and number > up_to):
                continue
            _apply(dialect, session, f"{number:04d}_{name}", text)
            if number == _LOCATION_KEYS:
                _fill_location_keys(session)
            row = (number, name, checksum(text), int(time.time() * 1000))
            session.insert("insert_migration", [row])
            done.append(number)
        session.commit()
        return done


def _apply(dialect: Dialect, session: Session, name: str, text: str) -> None:
    try:
        session.script(render(text, dialect))
    except dialect.errors() as error:
        if dialect.classify(error) is not Fault.OTHER:
            raise
        raise MigrationError(f"migration {name} failed: {error}", migration=name) from error


def _fill_location_keys(session: Session) -> None:
    """Give every table its key; of live tables in one folder, the oldest alone is unique.

    Such tables were accepted by earlier releases. `doctor` reports them.
    """
    taken: set[str] = set()
    rows: list[Row] = []
    for table_id, location, dropped_at_ms in session.query("table_locations"):
        try:
            key = location_key(location)
        except TxnLogError:  # a location that this release does not take
            key = f"{location.rstrip('/')}/"
        is_live = dropped_at_ms is None and key not in taken
        rows.append((table_id, key, key if is_live else None))
        if is_live:
            taken.add(key)
    if rows:
        session.insert("insert_location", rows)


def render(text: str, dialect: Dialect) -> str:
    """Put a database's own type names and clauses into a migration."""
    return _TOKEN.sub(lambda match: dialect.types[match[1]], text)


@cache
def checksum(text: str) -> str:
    """Identify a migration's text, whatever the line ends."""
    return hashlib.sha256("\n".join(text.split()).encode()).hexdigest()


# With the module, not when a catalog is first opened.
for _migration in migration_files():
    checksum(_migration[2])


def ledger_if_there(session: Session) -> list[Row] | None:
    """Return the applied migrations, None before the first: for databases that ask cheaply."""
    return session.query("applied_migrations") if session.query("has_ledger") else None


def version_of(ledger: list[Row] | None) -> int | None:
    """Return the schema version that a ledger tells; refuse a newer or altered schema."""
    if ledger is None:
        return None
    applied: dict[int, str] = dict(ledger)
    _check(applied)
    return max(applied, default=0)


def _is_current(ledger: list[Row] | None) -> bool:
    return version_of(ledger) == latest_version()


def _check(applied: dict[int, str]) -> None:
    known = {number: (name, checksum(text)) for number, name, text in migration_files()}
    newest = max(applied, default=0)
    if newest > latest_version():
        raise SchemaVersionError(
            f"the catalog has schema version {newest}, this release knows {latest_version()}",
            found=newest,
            supported=latest_version(),
            help="Upgrade deltasql; an older release must not write to a newer catalog.",
        )
    for number, found in applied.items():
        name, expected = known[number]
        if found != expected:
            raise MigrationError(
                f"migration {number} ({name}) of this catalog differs from the one of this release",
                migration=f"{number:04d}_{name}",
                help="The schema was changed by hand or by an unreleased build; "
                "restore the catalog from a backup or rebuild it from the lake.",
            )
