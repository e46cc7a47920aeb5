"""The checks of `doctor` on the database: response time, versions, schema and rows."""

from __future__ import annotations

import importlib.metadata
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.model.counts import many
from deltasql.model.report import Report
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

    from deltasql.exceptions import TxnLogError
    from deltasql.store.store import Store

OK, WARNING, FAILURE = "ok", "warning", "failure"
_SLOW_MS = 100.0
_LONG_TRANSACTION_S = 300.0
_REPLICA_LAG_S = 1.0
_PACKAGES = ("deltasql", "deltalake", "pyarrow", "pyspark")


@dataclass(frozen=True, slots=True)
class Check(Report):
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
            "A commit needs several round trips: run deltasql close to the database.",
        )
    return Check("connectivity", OK, f"{store.dialect.name} answers in {best:.2f} ms")


def versions(store: Store) -> Iterator[Check]:
    """Report the versions of the database, its driver and the libraries."""
    name, oldest = store.dialect.name, store.dialect.oldest_version
    found = str(store.query("database_version")[0][0])
    if _numbers(found)[: len(oldest)] < oldest:
        wanted = ".".join(map(str, oldest))
        yield Check("database version", FAILURE, f"{name} {found}", f"Use {wanted} or later.")
    else:
        yield Check("database version", OK, f"{name} {found}")
    installed = []
    for package in (*store.dialect.drivers, *_PACKAGES):
        try:
            installed.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            installed.append(f"{package} not installed")
    yield Check("library versions", OK, ", ".join(installed))


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
        return Check(name, FAILURE, "the database has no catalog", "Create it: deltasql init.")
    applied: dict[int, str] = dict(ledger)
    if newer := newer_migrations(applied):
        detail = f"a later release upgraded the catalog to schema version {newer[-1]}"
        return Check(name, FAILURE, detail, "Upgrade deltasql.")
    if altered := altered_migrations(applied):
        return Check(
            name,
            FAILURE,
            f"the checksums of migrations {_list(altered)} differ from those of this release",
            "The schema was changed by hand or by an unreleased build: restore a backup, or "
            "rebuild the catalog (deltasql rebuild).",
        )
    if pending := pending_migrations(applied):
        detail = f"migrations {_list(pending)} are not applied"
        return Check(name, FAILURE, detail, "Apply them: deltasql migrate.")
    return Check(name, OK, f"version {max(applied)}, all checksums match")


def indexes(store: Store) -> Check:
    """Check that all indexes exist and are valid."""
    present = {row[0] for row in store.query("index_names")}
    if missing := missing_indexes(store.dialect, present):
        return Check(
            "indexes",
            FAILURE,
            f"missing or not valid: {', '.join(missing)}",
            "Create them as the migrations do. Without these indexes, commits and reads are slow.",
        )
    return Check("indexes", OK, "all exist and are valid")


def pool(store: Store) -> Iterator[Check]:
    """Report the connections in use, and find transactions that are open for too long."""
    usage = store.dialect.usage()
    detail = ", ".join(f"{number} {state}" for state, number in usage.items())
    yield Check("pool", OK, detail)
    if store.dialect.lists_transactions:
        age = float(store.query("longest_transaction")[0][0])
        if age > _LONG_TRANSACTION_S:
            yield Check(
                "long transactions",
                WARNING,
                f"a transaction has been open for {age:,.0f} s",
                "The database cannot vacuum rows that this transaction may still read: see "
                "pg_stat_activity.",
            )
        else:
            yield Check("long transactions", OK, "none")


def replica(store: Store) -> Iterator[Check]:
    """Report how far a read replica is behind its primary server."""
    rows = store.query("replica_lag") if store.dialect.has_replicas else []
    for (lag_s,) in rows:
        if lag_s > _REPLICA_LAG_S:
            yield Check(
                "replica",
                WARNING,
                f"this is a read replica; the last commit that it shows is {lag_s:,.0f} s old",
                "Commits made since then are not visible here: see pg_stat_wal_receiver on this "
                "server and pg_stat_replication on the primary server.",
            )
        else:
            yield Check("replica", OK, "this is a read replica, and it shows all it received")


def integrity(store: Store, only: str | None) -> Iterator[Check]:
    """Compare each head with the table's commits and files; `only` selects one table."""
    checked, problems = 0, 0
    for row in store.query("head_facts"):
        name = join_table_name(row[1], row[2])
        if only is not None and name != only:
            continue
        checked += 1
        for problem in _head_problems(row[3:]):
            problems += 1
            yield Check(
                "integrity",
                FAILURE,
                problem,
                "Restore a backup, or rebuild the catalog from the published logs (deltasql "
                "rebuild).",
                name,
            )
    if not problems:
        yield Check("integrity", OK, f"heads of {many(checked, 'table')} checked")


def _head_problems(facts: tuple[int | None, ...]) -> Iterator[str]:
    version, next_file_id, newest, oldest, count, last_file, last_end, metadata, protocol = facts
    if version is None or next_file_id is None:
        yield "the table has no head"
        return
    if newest != version:
        yield f"the head is at version {version}, the latest commit is {newest}"
    if newest is not None and oldest is not None and count != newest - oldest + 1:
        yield f"only {count} of the versions {oldest} to {newest} exist"
    if last_file is not None and last_file >= next_file_id:
        yield f"file {last_file} exists, but the next file id of the head is {next_file_id}"
    if last_end is not None and last_end > version:
        yield f"a file was removed by version {last_end}, but the head is at version {version}"
    if not metadata:
        yield "the metadata that the head refers to does not exist"
    if not protocol:
        yield "the protocol that the head refers to does not exist"


def locations(store: Store, only: str | None) -> Iterator[Check]:
    """Find tables whose folders are the same or nested; `only` limits this to one table."""
    rows = store.query("live_location_keys")
    unrecorded = {join_table_name(space, name) for space, name, _, key in rows if not key}
    tables = sorted(
        (key or location_key(place), join_table_name(space, name), place)
        for space, name, place, key in rows
    )
    problems, around = 0, list[tuple[str, str, str]]()
    for table in tables:
        key, name, place = table
        while around and not key.startswith(around[-1][0]):
            around.pop()
        found = [_overlap(name, place, key, other) for other in around[-1:]]
        found += [_unrecorded(name, place)] if name in unrecorded else []
        found += [] if key == location_key(place) else [_moved(name, place, key)]
        for check in found:
            if only in (None, check.table):
                problems += 1
                yield check
        around.append(table)
    if not problems:
        yield Check("locations", OK, f"folders of {many(len(tables), 'table')} checked")


def _overlap(name: str, place: str, key: str, other: tuple[str, str, str]) -> Check:
    other_key, other_name, other_place = other
    if key == other_key:
        return Check(
            "locations",
            FAILURE,
            f"its folder {place} is also the folder of table {other_name} ({other_place})",
            "Drop one of the two tables. This deletes no file.",
            name,
        )
    return Check(
        "locations",
        WARNING,
        f"its folder {place} is inside the folder of table {other_name}: {other_place}",
        "A vacuum keeps the files of the other table, but each table should have its own folder.",
        name,
    )


def _unrecorded(name: str, place: str) -> Check:
    return Check(
        "locations",
        FAILURE,
        f"its folder {place} is not recorded: a process of an older release created the table "
        "after the upgrade",
        "Stop the processes of the older release, then record it: deltasql migrate.",
        name,
    )


def _moved(name: str, place: str, key: str) -> Check:
    return Check(
        "locations",
        WARNING,
        f"the symbolic link {place} was changed after the table was created in {key}",
        "Restore the link, or drop the table and import it from its new folder. Until then, "
        "another table can be created in the new folder.",
        name,
    )


def orphans(store: Store) -> Check:
    """Find rows that belong to tables that do not exist."""
    found = {row[0]: many(row[1], "row") for row in store.query("orphan_rows") if row[1]}
    for place, _ in store.query("orphan_logs"):
        found.setdefault(place, "a whole table")
    if found:
        detail = ", ".join(f"{place}: {what}" for place, what in found.items())
        return Check(
            "orphan rows",
            WARNING,
            f"rows of tables that do not exist: {detail}",
            "deltasql does not use these rows. A database administrator can delete them.",
        )
    return Check("orphan rows", OK, "none")


def unreachable(error: TxnLogError) -> Check:
    """Return the failure for a database that cannot be reached."""
    return Check("connectivity", FAILURE, str(error).splitlines()[0], error.help)


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
