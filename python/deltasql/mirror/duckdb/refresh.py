"""Refresh a DuckDB catalog file, which has a view of the latest version of every table.

An update changes a copy of the file and then replaces the file with the copy. So readers and
updates never wait for each other, and a reader sees every commit completely, even a commit to
several tables. Open readers keep the old file until they reopen it. A lock ensures that concurrent
updates by two processes lose nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from deltasql import telemetry
from deltasql.exceptions import TxnLogError, TxnLogMirrorError
from deltasql.mirror.duckdb.catalog_file import CatalogFile, ShownTable
from deltasql.mirror.publish.targets import catalog_key
from deltasql.snapshot.files import FileCache
from deltasql.snapshot.snapshot import Snapshot
from deltasql.storage import local_path
from deltasql.storage.local_files import flush_path, make_folders, sync_folder
from deltasql.storage.platform import open_lock_file, try_lock
from deltasql.store.records import Head, TableRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.config import Config
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_LOCK_TIMEOUT_S = 10.0
_PAUSE_S = 0.01
Heads: TypeAlias = "dict[int, tuple[TableRow, Head]]"


@dataclass(frozen=True, slots=True)
class Choice:
    """The tables that a catalog file shows; None means all tables, including future ones."""

    table_ids: frozenset[int] | None


@dataclass(slots=True)
class Refreshed:
    """The result of an update: the version and name of every view, and errors by table id."""

    versions: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    errors: dict[int, TxnLogMirrorError] = field(default_factory=dict)


# The last refresh of each file by this process. With it, a commit to several tables refreshes the
# file only once.
_last_refresh: dict[Path, tuple[tuple[int, int] | None, Heads, Refreshed]] = {}


def publish_view(
    store: Store, table: TableRow, location: str, version: int, config: Config
) -> None:
    """Refresh a catalog file, so that it shows this version of a table or a later one.

    All tables are refreshed, because other tables may have been renamed. Only an error of this
    table is raised.
    """
    refreshed = refresh(store, location, config, choice_of(store, location))
    if table.table_id in refreshed.errors:
        raise refreshed.errors[table.table_id]


def refresh_catalogs(store: Store, config: Config) -> None:
    """Refresh every DuckDB catalog file after a change without a commit.

    Such a change renames, creates or drops a table. Failures are logged, and the next commit tries
    again.
    """
    for (location,) in store.query("view_locations"):
        try:
            refresh(store, location, config, choice_of(store, location))
        except (TxnLogError, OSError) as error:
            telemetry.log(
                _log, logging.WARNING, "publishing failed", target=location, error=str(error)
            )


def choice_of(store: Store, location: str) -> Choice:
    """Return the tables that a file shows: all, or those that have the file as a target."""
    if store.query("catalog_target", key=catalog_key(location)):
        return Choice(None)
    rows = store.query("tables_shown_at", location=location)
    return Choice(frozenset(row[0] for row in rows))


def refresh(store: Store, location: str, config: Config, choice: Choice) -> Refreshed:
    """Update the views of a file to the latest versions of the chosen tables, atomically."""
    path = local_path(location)
    make_folders(str(path.parent))
    with _lock(path):
        # Read the latest versions while holding the lock, so that the last writer writes the newest
        # state.
        heads = _heads(store, choice)
        last = _last_refresh.get(path)
        if last is not None and last[:2] == (_file_id(path), heads):
            return last[2]
        staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        result = Refreshed()
        try:
            with _open_copy(path, staging) as file:
                changed = _update(file, store, config, heads, result, path)
            if changed or not path.exists():
                # Remove the WAL of the old file, because DuckDB would replay it into the new file.
                _wal(path).unlink(missing_ok=True)
                flush_path(str(staging))
                os.replace(staging, path)
                sync_folder(str(path.parent), str(path.parent))
            if not result.errors:
                _last_refresh[path] = (_file_id(path), heads, result)
        finally:
            for leftover in (staging, _wal(staging)):
                leftover.unlink(missing_ok=True)
    return result


def _update(
    file: CatalogFile,
    store: Store,
    config: Config,
    heads: Heads,
    result: Refreshed,
    path: Path,
) -> bool:
    """Update the views that are out of date; return whether anything changed."""
    shown, changed = file.tables(), False
    _check_same_catalog(store, path, shown)
    for table_id, before in shown.items():
        if table_id not in heads:
            file.forget(before)
        elif _full_name(before) != _full_name(heads[table_id][0]):
            file.hide(before)
        else:
            continue
        changed = True
    shown = file.tables()
    for table_id, (table, head) in heads.items():
        if not _is_current(shown.get(table_id), table, head):
            changed = True
            snapshot = Snapshot(store, table, FileCache(0, 0), head)
            _show(file, snapshot, shown.get(table_id), config, result, path)
        if table_id not in result.errors:
            result.versions[table_id] = head.version
            result.names[table_id] = table.full_name
    return file.drop_empty_schemas() or changed


def _heads(store: Store, choice: Choice) -> Heads:
    chosen = choice.table_ids
    return {
        row[0]: (TableRow.from_row(row[:8]), Head(row[0], *row[8:]))
        for row in store.query("live_heads")
        if chosen is None or row[0] in chosen
    }


def _full_name(table: TableRow | ShownTable) -> tuple[str, str]:
    return table.namespace, table.name


def _is_current(before: ShownTable | None, table: TableRow, head: Head) -> bool:
    if before is None or before.error is not None or not before.is_shown:
        return False
    return (before.version, before.location) == (head.version, table.location)


def _show(
    file: CatalogFile,
    snapshot: Snapshot,
    before: ShownTable | None,
    config: Config,
    result: Refreshed,
    path: Path,
) -> None:
    """Update one view; record a failure in the file, so that other views are still updated."""
    table = snapshot.table
    try:
        file.show(snapshot, before, config)
    except (TxnLogError, OSError, *file.errors) as error:
        failure = TxnLogMirrorError(
            f"the DuckDB view of {table.full_name} could not be created: {error}",
            table=table.full_name,
            version=snapshot.version,
            location=str(path),
            help="The next update tries again. The views of the other tables are up to date.",
        )
        failure.__cause__ = error
        file.record_error(snapshot, before, failure.message)
        result.errors[table.table_id] = failure


@contextmanager
def _open_copy(path: Path, staging: Path) -> Iterator[CatalogFile]:
    """Open a copy of the file, or a new file. After the block, the copy is completely written."""
    if path.exists():
        shutil.copyfile(path, staging)
    file = CatalogFile.open(staging)
    try:
        if not file.prepare():
            raise TxnLogMirrorError(
                f"{path} is a DuckDB database that deltasql did not create",
                location=str(path),
                help="Give the path of a new file: this one would be overwritten.",
            )
        yield file
        file.complete()
    except file.errors as error:
        raise TxnLogMirrorError(
            f"{path} could not be updated: {error}",
            location=str(path),
            help="The file is unchanged, and the update is tried again. Check the free disk space.",
        ) from error
    finally:
        file.close()


def _check_same_catalog(store: Store, path: Path, shown: dict[int, ShownTable]) -> None:
    if not shown:
        return
    rows = store.query("table_uuids", table_ids=list(shown))
    uuids = {row[0]: row[1] for row in rows}
    if any(uuids.get(i) != before.table_uuid for i, before in shown.items()):
        raise TxnLogMirrorError(
            f"{path} shows the tables of another catalog",
            location=str(path),
            help="Use a separate file for each catalog, or delete this one.",
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of the file, so that only one process updates it; raise after a timeout."""
    name = path.with_name(f".{path.name}.lock")
    descriptor = open_lock_file(str(name))
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TxnLogMirrorError(
                    f"another process has been updating {path} for more than "
                    f"{_LOCK_TIMEOUT_S:.0f} s",
                    location=str(path),
                    help="The update is tried again later. Check whether that process hangs.",
                )
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return inode and modification time, which change when the file is replaced."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")
