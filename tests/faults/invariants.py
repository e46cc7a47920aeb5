"""Invariants after any fault, checked in SQL, on disk, and with deltalake on the published log."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.faults.client import ANOTHER, Rows, append

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql import Catalog

NEXT: Rows = {99: 9}
_PATIENCE_S = 300.0


@dataclass(slots=True)
class Checked:
    """Counts of what was checked."""

    commits: int = 0
    rows: int = 0
    orphans: int = 0


def rows_of(catalog: Catalog, table: str, version: int | None = None) -> list[tuple[int, int]]:
    """Return the rows of the files that SQL lists; duplicated rows appear twice."""
    found = catalog.table(table)
    paths = found.files(version)["path"].to_pylist()
    return in_order(pa.concat_tables([pq.read_table(f"{found.location}/{p}") for p in paths]))


def in_order(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def published_rows(location: str | Path, version: int | None = None) -> list[tuple[int, int]]:
    """Return the rows that deltalake reads at the location."""
    return in_order(pa.table(DeltaTable(location, version=version).scan()))


def check_outcome(
    catalog: Catalog, tables: Sequence[str], before: Rows, after: Rows, *, others: bool
) -> bool:
    """Check that the commit is atomic and duplicates nothing; return whether it happened."""
    more = ANOTHER if others else {}
    states = {False: sorted((before | more).items()), True: sorted((after | more).items())}
    found = [rows_of(catalog, table) for table in tables]
    outcomes = [
        next((did for did, state in states.items() if rows == state), None) for rows in found
    ]
    assert None not in outcomes, f"rows are lost, duplicated or of no commit: {found}"
    assert len(set(outcomes)) == 1, f"the commit is partial: {outcomes}"
    return bool(outcomes[0])


def check_history(catalog: Catalog, tables: Sequence[str]) -> int:
    """Check that versions have no gap, that commits are complete, and that their files exist."""
    groups: Counter[str] = Counter()
    sizes: dict[str, set[int]] = {}
    commits = 0
    for table in tables:
        history = catalog.table(table).history()
        versions = [each.version for each in history]
        assert versions == list(range(versions[0], -1, -1)), f"gap in {table}: {versions}"
        commits += len(versions)
        missing = _listed(catalog, table) - on_disk(catalog, table)
        assert not missing, f"files of {table} are gone: {missing}"
        for txn_id, size in _rows(catalog, table, "txn_id, group_size", "dl_table_versions"):
            groups[txn_id] += 1
            sizes.setdefault(txn_id, set()).add(size)
    assert all(sizes[txn_id] == {count} for txn_id, count in groups.items()), "a commit is partial"
    return commits


def check_orphans(catalog: Catalog, tables: Sequence[str]) -> int:
    """Check that every file without a commit has an intent; return how many there are."""
    deadline = time.monotonic() + _PATIENCE_S
    orphans = {table: on_disk(catalog, table) - _listed(catalog, table) for table in tables}
    for table, found in orphans.items():
        while found and (unknown := found - _intents(catalog, table)):
            # The server may still execute a request of the killed client, which changes intents.
            assert time.monotonic() < deadline, f"neither a commit nor an intent has {unknown}"
            time.sleep(0.01)
    return sum(map(len, orphans.values()))


def check_lagging_log(catalog: Catalog, table: str) -> None:
    """Check that the published log may be behind SQL, but is consistent."""
    location = catalog.table(table).location
    version = DeltaTable(location).version()
    assert version <= catalog.table(table).version()
    assert published_rows(location) == rows_of(catalog, table, version)


def check_next_writer(catalog: Catalog, tables: Sequence[str]) -> None:
    """Check that the next client reads the rows and can commit."""
    rows = {table: rows_of(catalog, table) for table in tables}
    append(catalog, tables, NEXT)
    for table in tables:
        assert rows_of(catalog, table) == sorted([*rows[table], *NEXT.items()])


def check_vacuum(catalog: Catalog, tables: Sequence[str]) -> None:
    """Check that a vacuum after the retention deletes exactly the unreferenced files."""
    with catalog.store.change() as (session, _):
        for table in tables:
            table_id = catalog.table(table).row.table_id
            aged = f"UPDATE dl_staged_files SET staged_at_ms = 0 WHERE table_id = {table_id}"
            _execute(session, aged)
    for table in tables:
        catalog.vacuum(table, retention_hours=0, enforce_retention_duration=False, dry_run=False)
        check_no_intents(catalog, table)
        live = set(catalog.table(table).files()["path"].to_pylist())
        assert on_disk(catalog, table) == live


def check_no_intents(catalog: Catalog, table: str) -> None:
    """Check that no intents remain."""
    assert _intents(catalog, table) == set()


def check_mirror(catalog: Catalog, tables: Sequence[str], *, verify: bool) -> int:
    """Check that a reconciler publishes what SQL has; return how many rows deltalake read."""
    catalog.mirror.run(once=True)
    seen = 0
    for table in tables:
        wanted = rows_of(catalog, table)
        for status in catalog.mirror.status(table):
            assert (status.state, status.pending) == ("ACTIVE", 0), status
            location = status.location
            assert DeltaTable(location).version() == catalog.table(table).version()
            found = published_rows(location)
            assert found == wanted, f"{location} has other rows than the database"
            seen += len(found)
        if verify:
            _check_log(catalog, table)
    return seen


def _check_log(catalog: Catalog, table: str) -> None:
    """Check that the whole log agrees with SQL; only `_last_checkpoint` may be missing.

    Readers do not need it. The next published version writes it, and so does a repair.
    """
    [report] = catalog.mirror.verify(table, with_deltalake=False, data="files")
    if not report.ok:
        found = {(each.kind, each.log) for each in report.differences}
        assert found == {("last-checkpoint", None)}, report.summary()
        assert catalog.mirror.repair(table).ok


def on_disk(catalog: Catalog, table: str) -> set[str]:
    """Return the files in a table's folder, without its log."""
    root = Path(catalog.table(table).location)
    found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return {name for name in found if not name.startswith("_delta_log/")}


def _listed(catalog: Catalog, table: str) -> set[str]:
    """Return the files of all versions."""
    return {row[0] for row in _rows(catalog, table, "path", "dl_add_files")}


def _intents(catalog: Catalog, table: str) -> set[str]:
    row = catalog.table(table).row
    found = catalog.store.query("staged_files_of", table_id=row.table_id)
    return {path.removeprefix(f"{row.location}/") for _, path, _ in found}


def _rows(catalog: Catalog, table: str, columns: str, source: str) -> list[tuple[Any, ...]]:
    table_id = catalog.table(table).row.table_id
    text = f"SELECT {columns} FROM {source} WHERE table_id = {table_id}"
    with catalog.store.session() as session:
        found: list[tuple[Any, ...]] = _execute(session, text).fetchall()
    return found


def _execute(session: Any, text: str) -> Any:
    return session._connection.execute(text)
