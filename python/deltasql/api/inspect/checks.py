"""The checks of `doctor` on the database: response time, versions, schema and rows."""

from __future__ import annotations

import importlib.metadata
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.api.inspect.page import Shown
from deltasql.model.counts import many
from deltasql.storage.location import location_key
from deltasql.store.migrations import (
    altered_migrations,
    missing_indexes,
    newer_migrations,
    pending_migrations,
)
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.store.store import Store

OK, WARNING, FAILURE = "ok", "warning", "failure"
_SLOW_MS = 100.0
_LONG_TRANSACTION_S = 300.0
_DRIVERS = {"sqlite": (), "duckdb": ("duckdb",), "postgres": ("psycopg", "psycopg-pool")}
_PACKAGES = ("deltasql", "deltalake", "pyarrow", "pyspark")
# The oldest supported versions. SQLite has STRICT tables since 3.37.
OLDEST = {"sqlite": (3, 37), "postgres": (12,), "duckdb": (1, 4)}


@dataclass(frozen=True, slots=True)
class Check(Shown):
    """The result of one check: status, details, and a suggestion for a problem."""

    name: str
    status: str
    detail: str
    suggestion: str | None = None
    table: str | None = None


def connectivity(store: Store) -> Check:
    """Measure the response time of the database."""
    took = []
    for _ in range(5):
        start = time.perf_counter()
        store.query("database_version")
        took.append((time.perf_counter() - start) * 1000)
    best = min(took)
    if best > _SLOW_MS:
        return Check(
            "connectivity",
            WARNING,
            f"{store.dialect.name} answers in {best:.1f} ms",
            "Every commit takes some of these: run close to the database.",
        )
    return Check("connectivity", OK, f"{store.dialect.name} answers in {best:.2f} ms")


def versions(store: Store) -> Iterator[Check]:
    """Report the versions of the database, its driver and the libraries."""
    name = store.dialect.name
    found = str(store.query("database_version")[0][0])
    oldest = OLDEST[name]
    if _numbers(found)[: len(oldest)] < oldest:
        wanted = ".".join(map(str, oldest))
        yield Check("database version", FAILURE, f"{name} {found}", f"Use {wanted} or later.")
    else:
        yield Check("database version", OK, f"{name} {found}")
    told = []
    for package in (*_DRIVERS[name], *_PACKAGES):
        try:
            told.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            told.append(f"{package} not installed")
    yield Check("library versions", OK, ", ".join(told))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version.

    >>> _numbers("v1.5.5"), _numbers("15.18 (Debian)")
    ((1, 5, 5), (15, 18))
    """
    found = []
    for part in version.lstrip("v").split(" ")[0].split("."):
        digits = "".join(each for each in part if each.isdigit())
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def schema(store: Store) -> Check:
    """Compare the migrations of the catalog with those of this release."""
    name, ledger = "schema", store.ledger()
    if ledger is None:
        return Check(name, FAILURE, "the database holds no catalog", "deltasql init makes one.")
    applied: dict[int, str] = dict(ledger)
    if newer := newer_migrations(applied):
        told = f"the catalog was migrated to {newer[-1]} by a later release"
        return Check(name, FAILURE, told, "Upgrade deltasql.")
    if altered := altered_migrations(applied):
        return Check(
            name,
            FAILURE,
            f"migrations {_list(altered)} have another checksum than in this release",
            "The schema was changed by hand or by an unreleased build: restore a backup, or "
            "rebuild the catalog from the lake.",
        )
    if pending := pending_migrations(applied):
        told = f"migrations {_list(pending)} are not applied"
        return Check(name, FAILURE, told, "deltasql migrate applies them.")
    return Check(name, OK, f"version {max(applied)}, all checksums agree")


def indexes(store: Store) -> Check:
    """Check that all indexes exist and are valid."""
    present = {row[0] for row in store.query("index_names")}
    if missing := missing_indexes(store.dialect, present):
        return Check(
            "indexes",
            FAILURE,
            f"missing or not valid: {', '.join(missing)}",
            "Make them again as the migrations do; without them commits and reads get slow.",
        )
    return Check("indexes", OK, "all there")


def pool(store: Store) -> Iterator[Check]:
    """Report the connections in use, and find transactions that are open for too long."""
    usage = store.dialect.usage()
    told = ", ".join(f"{number} {state}" for state, number in usage.items())
    yield Check("pool", OK, told)
    if store.dialect.name == "postgres":
        age = float(store.query("longest_transaction")[0][0])
        if age > _LONG_TRANSACTION_S:
            yield Check(
                "long transactions",
                WARNING,
                f"a transaction has been open for {age:,.0f} s",
                "It holds back vacuuming of the database: see pg_stat_activity.",
            )
        else:
            yield Check("long transactions", OK, "none")


def integrity(store: Store, only: str | None) -> Iterator[Check]:
    """Compare each head with the rows of its table; `only` limits this to one table."""
    looked, problems = 0, 0
    for row in store.query("head_facts"):
        name = join_table_name(row[1], row[2])
        if only is not None and name != only:
            continue
        looked += 1
        for problem in _head_problems(row[3:]):
            problems += 1
            yield Check(
                "integrity",
                FAILURE,
                problem,
                "Restore a backup, or rebuild the catalog from the lake (deltasql rebuild).",
                name,
            )
    if not problems:
        yield Check("integrity", OK, f"heads of {many(looked, 'table')} looked at")


def _head_problems(facts: tuple[int | None, ...]) -> Iterator[str]:
    version, next_file_id, newest, oldest, count, last_file, last_end, metadata, protocol = facts
    if version is None or next_file_id is None:
        yield "the table has no head"
        return
    if newest != version:
        yield f"the head is at version {version}, the latest commit is {newest}"
    if newest is not None and oldest is not None and count != newest - oldest + 1:
        yield f"of the versions {oldest} to {newest} only {count} are there"
    if last_file is not None and last_file >= next_file_id:
        yield f"file {last_file} is beyond the head, which ends before {next_file_id}"
    if last_end is not None and last_end > version:
        yield f"a file was removed by version {last_end}, which is beyond the head"
    if not metadata:
        yield "the head names metadata that is not there"
    if not protocol:
        yield "the head names a protocol that is not there"


def locations(store: Store, only: str | None) -> Iterator[Check]:
    """Find tables that share a folder or are inside another table's; `only` names one table."""
    rows = store.query("live_location_keys")
    tables = sorted((key, join_table_name(space, name), place) for space, name, place, key in rows)
    problems, around = 0, list[tuple[str, str, str]]()
    for table in tables:
        key, name, place = table
        while around and not key.startswith(around[-1][0]):
            around.pop()
        told = [_overlap(name, place, key, other) for other in around[-1:]]
        told += [] if key == location_key(place) else [_moved(name, place, key)]
        for check in told:
            if only in (None, check.table):
                problems += 1
                yield check
        around.append(table)
    if not problems:
        yield Check("locations", OK, f"folders of {many(len(tables), 'table')} looked at")


def _overlap(name: str, place: str, key: str, other: tuple[str, str, str]) -> Check:
    other_key, other_name, other_place = other
    if key == other_key:
        return Check(
            "locations",
            FAILURE,
            f"its folder {place} is that of table {other_name} too ({other_place})",
            "Drop one of them: no file is deleted.",
            name,
        )
    return Check(
        "locations",
        WARNING,
        f"its folder {place} lies inside that of table {other_name}: {other_place}",
        "A vacuum spares the other table; give each a folder of its own.",
        name,
    )


def _moved(name: str, place: str, key: str) -> Check:
    return Check(
        "locations",
        WARNING,
        f"a symbolic link leads {place} to another folder than when the table was created: {key}",
        "Another table may be created in that folder: move it back, or drop the table and import "
        "it from where it is.",
        name,
    )


def orphans(store: Store) -> Check:
    """Find rows that belong to tables that do not exist."""
    found = {row[0]: many(row[1], "row") for row in store.query("orphan_rows") if row[1]}
    for place, _ in store.query("orphan_logs"):
        found.setdefault(place, "a whole table")
    if found:
        told = ", ".join(f"{place}: {what}" for place, what in found.items())
        return Check(
            "orphan rows",
            WARNING,
            f"rows of tables that are not there: {told}",
            "Nothing reads them; a database administrator may delete them.",
        )
    return Check("orphan rows", OK, "none")


def unreachable(error: BaseException) -> Check:
    """Return the failure for a database that cannot be reached."""
    return Check(
        "connectivity", FAILURE, str(error).splitlines()[0], "Check the URI and the database."
    )


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
