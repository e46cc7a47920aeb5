"""Upgrade the schema of a catalog with numbered, checksummed migrations, in one transaction."""

from __future__ import annotations

import hashlib
import re
import time
from functools import cache
from typing import TYPE_CHECKING

from deltasql.exceptions import MigrationError, SchemaVersionError
from deltasql.store.dialect import Fault
from deltasql.store.locations import record_locations
from deltasql.store.statements import migration_files

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.store.dialect import Dialect, Row, Session

_LOCATION_KEYS = 4  # the migration whose values are computed in Python
_TOKEN = re.compile(r"\{(\w+)\}")
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+)")

_CREATE_LEDGER = """
CREATE TABLE IF NOT EXISTS dl_migrations (
  version {bigint} PRIMARY KEY,
  name {text} NOT NULL,
  checksum {text} NOT NULL,
  applied_at_ms {bigint} NOT NULL
){strict}
"""


def latest_version() -> int:
    """Return the schema version that this release needs."""
    return migration_files()[-1][0]


def migrate(dialect: Dialect, *, up_to: int | None = None) -> list[int]:
    """Apply pending migrations and return their numbers; raise for a newer or altered schema."""
    with dialect.write_turn(), dialect.session() as session:
        if up_to is None and _is_current(dialect.ledger(session)):
            return []
        session.begin(is_bulk=True)
        # If two processes migrate at the same time, the second waits here and then has nothing to
        # do.
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
                record_locations(session)
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


def render(text: str, dialect: Dialect) -> str:
    """Insert the type names and clauses of a database into a migration."""
    return _TOKEN.sub(lambda match: dialect.types[match[1]], text)


@cache
def checksum(text: str) -> str:
    """Return a checksum of a migration that ignores differences in white space."""
    return hashlib.sha256("\n".join(text.split()).encode()).hexdigest()


# Compute the checksums on import, so that the first open of a catalog is not slower.
for _migration in migration_files():
    checksum(_migration[2])


def ledger_if_exists(session: Session) -> list[Row] | None:
    """Return the applied migrations; None if the table of migrations does not exist."""
    return session.query("applied_migrations") if session.query("has_ledger") else None


def version_of(ledger: list[Row] | None) -> int | None:
    """Return the schema version of a catalog; raise for a newer or altered schema."""
    if ledger is None:
        return None
    applied: dict[int, str] = dict(ledger)
    _check(applied)
    return max(applied, default=0)


def altered_migrations(applied: dict[int, str]) -> list[int]:
    """Return the applied migrations whose checksum differs from that of this release."""
    known = {number: checksum(text) for number, _, text in migration_files()}
    return sorted(n for n, found in applied.items() if n in known and known[n] != found)


def pending_migrations(applied: dict[int, str]) -> list[int]:
    """Return the migrations of this release that are not applied."""
    return [number for number, _, _ in migration_files() if number not in applied]


def newer_migrations(applied: dict[int, str]) -> list[int]:
    """Return the applied migrations that this release does not have."""
    return sorted(number for number in applied if number > latest_version())


def missing_indexes(dialect: Dialect, present: Collection[str]) -> list[str]:
    """Return the indexes of the migrations that are not present."""
    expected = [
        name for _, _, text in migration_files() for name in _INDEX.findall(render(text, dialect))
    ]
    return [name for name in expected if name not in present]


def _is_current(ledger: list[Row] | None) -> bool:
    return version_of(ledger) == latest_version()


def _check(applied: dict[int, str]) -> None:
    known = {number: (name, checksum(text)) for number, name, text in migration_files()}
    newest = max(applied, default=0)
    if newest > latest_version():
        raise SchemaVersionError(
            f"the catalog has schema version {newest}, this release supports {latest_version()}",
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
                "restore the catalog from a backup, or rebuild it with `deltasql rebuild`.",
            )
