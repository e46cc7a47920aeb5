"""`doctor`: run all checks on a catalog. It never writes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.api.inspect import checks
from deltasql.api.inspect.advice import (
    WORTHWHILE_SHARE,
    PartFiles,
    rewritten_parts,
    vacuum_advice,
)
from deltasql.api.inspect.checks import FAILURE, OK, WARNING, Check
from deltasql.api.inspect.totals import TotalsCache
from deltasql.exceptions import TxnLogError, redact
from deltasql.mirror.checkpoint.checksum import checksum_file
from deltasql.mirror.publish.status import status_of
from deltasql.mirror.publish.targets import DELTA, FAILED, QUARANTINED, all_targets, targets_of
from deltasql.model.clock import from_ms, now_ms
from deltasql.model.counts import many, size_text
from deltasql.model.json_text import load_json
from deltasql.model.report import Report
from deltasql.operations.optimize.compaction import wanted_file_size
from deltasql.operations.vacuum.vacuum import INTENT_GRACE_MS
from deltasql.storage import open_storage
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.catalog.base import BaseCatalog, CatalogTable
    from deltasql.api.inspect.totals import TableTotals
    from deltasql.mirror.publish.status import LogFault
    from deltasql.mirror.publish.targets import PublishTarget
    from deltasql.store.dialect import Row

_DAY_MS = 86_400_000
# At most this many tables are checked one by one: the most recently changed ones.
_CLOSELY = 100
_MANY_FILES = 100
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DoctorReport(Report):
    """The results of all checks; `ok` means that no check failed."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> int:
        return sum(each.status == FAILURE for each in self.checks)

    @property
    def warnings(self) -> int:
        return sum(each.status == WARNING for each in self.checks)


def doctor(
    catalog: BaseCatalog, table: str | None = None, totals: TotalsCache | None = None
) -> DoctorReport:
    """Check a catalog, or one of its tables."""
    found = check_database(catalog)
    # The last check of the database fails only if the connection was lost or if the schema is not
    # that of this release. The tables cannot be checked then.
    if found.checks[-1].status == FAILURE:
        return found
    totals = totals or TotalsCache(catalog.store)
    return DoctorReport((*found.checks, *_check_tables(catalog, table, totals)))


def check_database(catalog: BaseCatalog) -> DoctorReport:
    """Check that the database answers and has the schema of this release; no table is read."""
    return DoctorReport(tuple(_check_database(catalog)))


def _check_database(catalog: BaseCatalog) -> Iterator[Check]:
    store = catalog.store
    try:
        yield checks.connectivity(store)
        yield from checks.versions(store)
        schema = checks.schema(store)
        yield schema
        if schema.status == OK:
            yield checks.indexes(store)
            yield from checks.pool(store)
            yield from checks.replica(store)
    except TxnLogError as error:
        yield checks.unreachable(error)


def _check_tables(catalog: BaseCatalog, table: str | None, totals: TotalsCache) -> Iterator[Check]:
    store = catalog.store
    chosen = [catalog.table(table)] if table is not None else catalog.tables()
    found = [*checks.integrity(store, None if table is None else chosen[0].full_name)]
    yield from found
    # Checks that depend on the head are skipped for tables whose head is wrong.
    broken = {each.table for each in found if each.status != OK}
    yield from checks.locations(store, None if table is None else chosen[0].full_name)
    yield checks.orphans(store)
    yield from _mirror(catalog, {each.row.table_id for each in chosen})
    yield _intents(catalog)
    sound = [each for each in chosen if each.full_name not in broken]
    yield from _tables(catalog, sound, totals)


def _mirror(catalog: BaseCatalog, table_ids: set[int]) -> Iterator[Check]:
    problems = 0
    targets = [each for each in all_targets(catalog.store) if each.table.table_id in table_ids]
    for target in targets:
        check = _mirror_problem(catalog, target)
        if check is not None:
            problems += 1
            yield check
    if not problems:
        yield Check("mirror", OK, f"{many(len(targets), 'target')}, none delayed or failing")


def _mirror_problem(catalog: BaseCatalog, target: PublishTarget) -> Check | None:
    found = status_of(target, catalog.config.mirror)
    place = "" if target.is_own else f" at {target.name}"
    name = join_table_name(target.table.namespace, target.table.name)
    error = redact((found.last_error or "").partition("\n")[0])
    if found.state == QUARANTINED:
        return Check(
            "mirror",
            FAILURE,
            f"quarantined{place} at version {found.published_version}: {error}",
            _adopt_or_reject(name)
            if target.is_own
            else f"Replace its log: catalog.mirror.repair({name!r}, target={target.name!r}, "
            "force=True).",
            name,
        )
    if found.state == FAILED and found.pending:
        return Check(
            "mirror",
            FAILURE,
            f"{many(found.attempts, 'attempt')} failed{place} at version "
            f"{found.published_version + 1}: {error}",
            f"Fix the cause, then run deltasql mirror publish {name}.",
            name,
        )
    if found.is_unhealthy:
        return Check(
            "mirror",
            WARNING,
            f"not published yet: {many(found.pending, 'version')}{place}, the oldest for "
            f"{found.lag_s:,.0f} s",
            "Publish them: deltasql mirror run.",
            name,
        )
    return None


def _intents(catalog: BaseCatalog) -> Check:
    abandoned = catalog.store.query("staged_without_table", before_ms=now_ms() - INTENT_GRACE_MS)
    if abandoned:
        return Check(
            "intents",
            WARNING,
            f"uncommitted files of tables that were never created: {many(len(abandoned), 'file')}",
            "Delete them: deltasql vacuum --uncommitted.",
        )
    count, oldest = catalog.store.query("staged_count", before_ms=now_ms() - _DAY_MS)[0]
    if not count:
        return Check("intents", OK, "no uncommitted file is older than a day")
    return Check(
        "intents",
        WARNING,
        f"uncommitted files: {many(count, 'file')}, the oldest from {from_ms(oldest):%Y-%m-%d}",
        "A deltasql vacuum deletes them when they are older than the retention period.",
    )


def _tables(
    catalog: BaseCatalog, chosen: list[CatalogTable], cache: TotalsCache
) -> Iterator[Check]:
    """Check sizes and maintenance of the most recently changed tables, at most `_CLOSELY`."""
    rows = {row[0]: row for row in catalog.store.query("live_heads")}
    latest = sorted(
        (each for each in chosen if each.row.table_id in rows),
        key=lambda each: -int(rows[each.row.table_id][9]),
    )[:_CLOSELY]
    heads = {each.row.table_id: rows[each.row.table_id][8] for each in latest}
    totals = cache.of(heads) if heads else {}
    small = _small_files(catalog, latest, totals)
    unreachable: dict[str, int] = {}
    found = [
        check
        for each in latest
        if each.row.table_id in totals  # absent if it was dropped after it was listed
        for check in _table(catalog, each, totals[each.row.table_id], unreachable)
    ]
    found += [
        Check(
            "small files",
            WARNING,
            small[each.row.table_id],
            f"Combine them: deltasql optimize {each.full_name}.",
            each.full_name,
        )
        for each in latest
        if each.row.table_id in small
    ]
    yield from found
    for store, count in unreachable.items():
        if count:
            yield Check(
                "storage", WARNING, redact(f"{count:,} more tables on {store} were not checked")
            )
    for name in ("storage", "totals", "log files", "small files", "vacuum"):
        if not any(each.name == name for each in found):
            yield Check(name, OK, f"{many(len(latest), 'table')} checked")


def _table(
    catalog: BaseCatalog, table: CatalogTable, totals: TableTotals, unreachable: dict[str, int]
) -> Iterator[Check]:
    """Check a table; files in an object store that did not respond are skipped and counted."""
    store = _store_of(table.location)
    if store in unreachable:
        # Every further table in this store would run into the same timeout.
        unreachable[store] += 1
    elif (check := _published_totals(catalog, table, totals)) is not None:
        yield check
        if check.name == "storage" and store is not None:
            unreachable[store] = 0
    name = table.full_name
    if store not in unreachable:
        yield from _log_files(catalog, table)
    if not table.is_following:
        vacuum = vacuum_advice(table.snapshot())
        if vacuum.overdue:
            yield Check(
                "vacuum",
                WARNING,
                f"no longer needed: {many(vacuum.files, 'file')} of {size_text(vacuum.bytes)}",
                f"Delete them: deltasql vacuum {name}.",
                name,
            )


def _log_files(catalog: BaseCatalog, table: CatalogTable) -> Iterator[Check]:
    """Find damage in the published logs of a table, as `mirror status` does."""
    from deltasql.verify.quick_check import log_faults  # lazy import: needed only to read logs

    for target in targets_of(catalog.store, table.row):
        if target.kind != DELTA:
            continue
        storage = open_storage(target.location, catalog.config.storage)
        faults = log_faults(catalog.store, target, storage)
        if not faults:
            continue
        place = "" if target.is_own else f" at {target.name}"
        is_damaged = any(each.is_damage for each in faults)
        problem = "is damaged" if is_damaged else "has commits of another program"
        shown = "; ".join(each.text for each in faults[:_SHOWN])
        more = f" and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
        yield Check(
            "log files",
            FAILURE,
            f"the published log{place} {problem}: {shown}{more}",
            " ".join(_log_suggestions(table.full_name, target, faults)),
            table.full_name,
        )


def _log_suggestions(name: str, target: PublishTarget, faults: Sequence[LogFault]) -> Iterator[str]:
    if target.is_own and any(each.is_after_head for each in faults):
        yield _adopt_or_reject(name)
    if any(each.is_damage for each in faults):
        yield f"Write damaged files again: deltasql mirror repair {name}."
    if any(not each.is_damage and not each.is_after_head for each in faults):
        yield (
            "Replace published commits that another program changed: "
            f"deltasql mirror repair {name} --force."
        )


def _adopt_or_reject(name: str) -> str:
    return (
        f"Load the commits of the other program: deltasql mirror adopt {name}. "
        f"Or move them out of the log: deltasql mirror reject {name}."
    )


def _small_files(
    catalog: BaseCatalog, tables: list[CatalogTable], totals: dict[int, TableTotals]
) -> dict[int, str]:
    """Return a message, by table id, for tables in which OPTIMIZE would save many files.

    The average file size does not show this, because a few large files outweigh many small ones.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for table in tables:
        table_id = table.row.table_id
        if table_id in totals and totals[table_id].sums.files >= _MANY_FILES:
            by_size[wanted_file_size(table.snapshot().metadata.configuration)].append(table_id)
    messages = {}
    for wanted, table_ids in by_size.items():
        parts: dict[int, list[Row]] = defaultdict(list)
        for row in catalog.store.query(
            "small_files", table_ids=table_ids, below=wanted, half=wanted // 2
        ):
            parts[row[0]].append(row)
        for table_id, rows in parts.items():
            every = [PartFiles(*map(int, row[1:5])) for row in rows]
            saved = sum(part.files - made for part, made in rewritten_parts(every, wanted))
            files = totals[table_id].sums.files
            small = sum(int(row[5]) for row in rows)
            if small and saved >= max(_MANY_FILES, files * WORTHWHILE_SHARE):
                average = sum(int(row[6]) for row in rows) // small
                messages[table_id] = (
                    f"{small:,} of {files:,} files have {size_text(average)} on average, "
                    f"below the target size of {size_text(wanted)}, "
                    f"in {many(len(rows), 'partition')}"
                )
    return messages


def _store_of(location: str) -> str | None:
    """Return the object store of a location; None for a local folder."""
    scheme, found, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if found and scheme != "file" else None


def _published_totals(
    catalog: BaseCatalog, table: CatalogTable, totals: TableTotals
) -> Check | None:
    """Compare the live files with the published checksum of the same version, if it exists."""
    storage = open_storage(table.location, catalog.config.storage)
    try:
        checksum = load_json(storage.read(checksum_file(totals.version)))
        published = int(checksum["numFiles"]), int(checksum["tableSizeBytes"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # not published yet, or published without a checksum
    except (OSError, TxnLogError) as error:
        return Check(
            "storage",
            FAILURE,
            redact(f"{table.location} cannot be read: {str(error).partition(chr(10))[0]}"),
            "Check the location, its credentials and storage.options.",
            table.full_name,
        )
    ours = totals.sums.files, totals.sums.bytes
    if ours == published:
        return None
    return Check(
        "totals",
        FAILURE,
        f"the database has {ours[0]:,} live files of {ours[1]:,} bytes, the published checksum "
        f"of version {totals.version} has {published[0]:,} of {published[1]:,}",
        f"Find the difference: deltasql verify {table.full_name}.",
        table.full_name,
    )
