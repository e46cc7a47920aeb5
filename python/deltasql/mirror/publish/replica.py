"""A replica: the data files that a commit names are copied before its commit file is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.log.encode import files_named

if TYPE_CHECKING:
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def copy_files(
    store: Store, table: TableRow, source: Storage, replica: Storage, data: bytes
) -> None:
    """Copy what a commit brings and the replica lacks; absolute paths lead to the one file.

    When this returns, the files and their names survive a power loss.
    """
    folders = set()
    for file in files_named(data):
        if file.path.startswith("/") or "://" in file.path:
            continue
        name = source.data_name(file.path)
        try:
            if not _is_whole(source, replica, name):
                replica.copy_from(source, name, flush_folder=False)
            folders.add(name.rpartition("/")[0])
        except FileNotFoundError as error:
            # Vacuumed since: no reader of the latest version asks for it.
            if file.key is not None and _is_live(store, table, file.key):
                raise TxnLogMirrorError(
                    f"{file.path} of {table.full_name} is live, but its file is not there",
                    table=table.full_name,
                    location=source.location,
                    help="Restore the file, or the table to a version that does without it.",
                ) from error
    for folder in sorted(folders):
        replica.flush_folder(folder)


def _is_whole(source: Storage, replica: Storage, name: str) -> bool:
    """Tell whether a replica has a file in full: release 0.1.0 could leave a part of it."""
    try:
        return replica.size(name) == source.size(name)
    except FileNotFoundError:
        return False


def _is_live(store: Store, table: TableRow, key: bytes) -> bool:
    return bool(store.query("live_by_key", table_id=table.table_id, keys=[key]))
