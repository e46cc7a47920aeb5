"""A DuckDB file in which every table of a catalog is a view over the live files of its head.

It guarantees that who opens the file sees every commit whole, also one over several tables, that
an update never waits for a reader and no reader for an update, and that two processes which
update it lose nothing. An update is made in a copy beside the file, which then takes its name:
who has the old one open keeps it until he opens the file again.
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
from deltasql.mirror.duckdb.file import CatalogFile, KnownTable
from deltasql.mirror.publish.targets import catalog_key
from deltasql.snapshot.cache import FileCache
from deltasql.snapshot.snapshot import Snapshot
from deltasql.storage import local_path
from deltasql.storage.local_files import flush_path, make_folders, sync_folder
from deltasql.store.file_lock import try_lock
from deltasql.store.records import Head, TableRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.config import Config
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_WAIT_S = 10.0
_PAUSE_S = 0.01
Heads: TypeAlias = "dict[int, tuple[TableRow, Head]]"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tables a file shows; None is all of them, also those that are yet to come."""

    table_ids: frozenset[int] | None


@dataclass(slots=True)
class Refreshed:
    """What an update left in the file: the version of every view, and what failed."""

    versions: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    errors: dict[int, TxnLogMirrorError] = field(default_factory=dict)


# What this process left in a file: the second table of a commit finds all of it done already.
_seen: dict[Path, tuple[tuple[int, int] | None, Heads, Refreshed]] = {}


def publish_view(
    store: Store, table: TableRow, location: str, version: int, config: Config
) -> None:
    """Bring the file up to date, to this version or a later one.

    All tables are looked at, so what changed elsewhere, a name for example, is made up for too;
    an error tells of this table alone.
    """
    refreshed = refresh(store, location, config, choice_of(store, location))
    if table.table_id in refreshed.errors:
        raise refreshed.errors[table.table_id]


def refresh_catalogs(store: Store, config: Config) -> None:
    """Bring every file of the catalog up to date; what fails is logged, the next commit retries.

    For what changes without a commit: the names of tables, and which there are.
    """
    for (location,) in store.query("view_locations"):
        try:
            refresh(store, location, config, choice_of(store, location))
        except (TxnLogError, OSError) as error:
            telemetry.log(
                _log, logging.WARNING, "publishing failed", target=location, error=str(error)
            )


def choice_of(store: Store, location: str) -> Choice:
    """Return which tables a file is to show: all, or those that have it for a target."""
    if store.query("catalog_target", key=catalog_key(location)):
        return Choice(None)
    rows = store.query("tables_shown_at", location=location)
    return Choice(frozenset(row[0] for row in rows))


def refresh(store: Store, location: str, config: Config, choice: Choice) -> Refreshed:
    """Make the views of a file equal to the heads of the chosen tables, as one step."""
    path = local_path(location)
    make_folders(str(path.parent))
    with _turn(path):
        # Heads are read after the turn has come: who is last writes what is newest.
        heads = _heads(store, choice)
        seen = _seen.get(path)
        if seen is not None and seen[:2] == (_stamp(path), heads):
            return seen[2]
        staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        result = Refreshed()
        try:
            with _copied(path, staging) as file:
                changed = _update(file, store, config, heads, result, path)
            if changed or not path.exists():
                # A log beside the old file would be replayed into the new one.
                _wal(path).unlink(missing_ok=True)
                flush_path(str(staging))
                os.replace(staging, path)
                sync_folder(str(path.parent), str(path.parent))
            if not result.errors:
                _seen[path] = (_stamp(path), heads, result)
        finally:
            for left in (staging, _wal(staging)):
                left.unlink(missing_ok=True)
    return result


def _update(
    file: CatalogFile,
    store: Store,
    config: Config,
    heads: Heads,
    result: Refreshed,
    path: Path,
) -> bool:
    """Change what has changed; True if anything had."""
    known, changed = file.tables(), False
    _refuse_other_catalog(store, path, known)
    for table_id, before in known.items():
        if table_id not in heads:
            file.forget(before)
        elif _full_name(before) != _full_name(heads[table_id][0]):
            file.hide(before)
        else:
            continue
        changed = True
    known = file.tables()
    for table_id, (table, head) in heads.items():
        if not _is_current(known.get(table_id), table, head):
            changed = True
            snapshot = Snapshot(store, table, FileCache(0, 0), head)
            _show(file, snapshot, known.get(table_id), config, result, path)
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


def _full_name(table: TableRow | KnownTable) -> tuple[str, str]:
    return table.namespace, table.name


def _is_current(before: KnownTable | None, table: TableRow, head: Head) -> bool:
    if before is None or before.error is not None or not before.is_shown:
        return False
    return (before.version, before.location) == (head.version, table.location)


def _show(
    file: CatalogFile,
    snapshot: Snapshot,
    before: KnownTable | None,
    config: Config,
    result: Refreshed,
    path: Path,
) -> None:
    """Make one view; its failure is noted in the file and does not hold the others back."""
    table = snapshot.table
    try:
        file.show(snapshot, before, config)
    except (TxnLogError, OSError, *file.errors) as error:
        failure = TxnLogMirrorError(
            f"the DuckDB view of {table.full_name} could not be made: {error}",
            table=table.full_name,
            version=snapshot.version,
            location=str(path),
            help="It is tried again with the next update; the other tables are up to date.",
        )
        failure.__cause__ = error
        file.note_error(snapshot, before, failure.message)
        result.errors[table.table_id] = failure


@contextmanager
def _copied(path: Path, staging: Path) -> Iterator[CatalogFile]:
    """Open a copy of the file, or a new one; it is complete when the block ends."""
    if path.exists():
        shutil.copyfile(path, staging)
    file = CatalogFile.open(staging)
    try:
        if not file.prepare():
            raise TxnLogMirrorError(
                f"{path} is a DuckDB database that deltasql did not make",
                location=str(path),
                help="Give the path of a new file: this one would be replaced.",
            )
        yield file
        file.complete()
    except file.errors as error:
        raise TxnLogMirrorError(
            f"{path} could not be updated: {error}",
            location=str(path),
            help="It is as it was before, and tried again later; look at the space on the disk.",
        ) from error
    finally:
        file.close()


def _refuse_other_catalog(store: Store, path: Path, known: dict[int, KnownTable]) -> None:
    if not known:
        return
    rows = store.query("table_uuids", table_ids=list(known))
    uuids = {row[0]: row[1] for row in rows}
    if any(uuids.get(i) != before.table_uuid for i, before in known.items()):
        raise TxnLogMirrorError(
            f"{path} shows the tables of another catalog",
            location=str(path),
            help="Give each catalog a file of its own, or delete this one.",
        )


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Let one update at a time happen; an error when others take too long."""
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + _WAIT_S
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TxnLogMirrorError(
                    f"{path} is being updated by another process for more than {_WAIT_S:.0f} s",
                    location=str(path),
                    help="It is tried again later; look for a process that hangs.",
                )
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that takes its place."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")
