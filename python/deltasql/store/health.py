"""Whether the schema of a database is what this release expects; nothing is changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deltasql.store.migrations import checksum, latest_version, render
from deltasql.store.statements import migration_files

if TYPE_CHECKING:
    from deltasql.store.store import Store

_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+)")


def ledger(store: Store) -> dict[int, str] | None:
    """Return the applied migrations as number → checksum; None in an empty database."""
    rows = store.ledger()
    return None if rows is None else {row[0]: row[1] for row in rows}


def altered_migrations(applied: dict[int, str]) -> list[int]:
    """Return the migrations whose text was another one than that of this release."""
    known = {number: checksum(text) for number, _, text in migration_files()}
    return sorted(n for n, found in applied.items() if n in known and known[n] != found)


def pending_migrations(applied: dict[int, str]) -> list[int]:
    """Return the migrations of this release that were not applied."""
    return [number for number, _, _ in migration_files() if number not in applied]


def newer_migrations(applied: dict[int, str]) -> list[int]:
    """Return migrations that only a later release knows."""
    return sorted(number for number in applied if number > latest_version())


def missing_indexes(store: Store) -> list[str]:
    """Return the indexes that the migrations made and that are not there, or not usable."""
    expected = [
        name
        for _, _, text in migration_files()
        for name in _INDEX.findall(render(text, store.dialect))
    ]
    present = {row[0] for row in store.query("index_names")}
    return [name for name in expected if name not in present]
