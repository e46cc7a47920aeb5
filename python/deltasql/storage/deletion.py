"""Decide which files in a table's folder may be deleted. All data files are deleted through here.

A log can contain any path, and a listing finds any file in the folder, so neither proves that a
file belongs to the table. `Deletable.reason_against` decides by the name and the folders of the
file. tests/storage/test_deletion.py lists all callers of functions that delete files.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql import telemetry
from deltasql.storage.location import is_inside, local_path, location_key, parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from deltasql.storage.base import Storage

CHANGE_DATA = "_change_data"
LOG = "_delta_log"
_THREADS = 16
_MAX_LOGGED = 20  # the most protected files named in one log line
_log = logging.getLogger(__name__)


class Deletable:
    """Decides which files below one location may be deleted.

    `partition_columns` are the columns whose folders may start with `_` or a dot; None allows every
    folder `name=value`. `engine_folders` are folders (with a slash at the end) that an engine
    created for one write; files there may have hidden names. `others` are the location keys of
    other tables. `databases` are database files of catalogs. Files whose names start with the name
    of a database file (`-wal`, `-shm`) are protected, too.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        partition_columns: Collection[str] | None = (),
        engine_folders: Iterable[str] = (),
        others: Iterable[str] = (),
        databases: Iterable[str] = (),
    ) -> None:
        self._storage = storage
        self._columns = partition_columns
        self._engine_folders = tuple(engine_folders)
        self._is_local = parse_location(storage.location).is_local
        self._key = location_key(storage.location)
        self._others = tuple(other for other in others if other.startswith(self._key))
        self._databases = tuple(key for each in databases for key in _file_keys(each))
        self._root = os.path.realpath(local_path(storage.location)) if self._is_local else ""
        self._own_log = os.path.realpath(f"{self._root}/{LOG}") + "/" if self._is_local else ""
        self._has_log: dict[str, bool] = {}
        self._is_real: dict[str, bool] = {}

    def allowed(self, names: Iterable[str]) -> list[str]:
        """Return the names that may be deleted; log the others with the reason."""
        wanted = list(names)
        self._look_for_logs(wanted)
        forbidden = {name: why for name in wanted if (why := self.reason_against(name)) is not None}
        if forbidden:
            telemetry.log(
                _log,
                logging.WARNING,
                "files not deleted",
                location=self._storage.location,
                count=len(forbidden),
                files=dict(islice(forbidden.items(), _MAX_LOGGED)),
            )
        return [name for name in wanted if name not in forbidden]

    def reason_against(self, name: str) -> str | None:
        """Return the reason why a file must not be deleted; None if it may be deleted."""
        if not is_inside(name):
            return "the name does not stay below the table's folder"
        if LOG in name.split("/"):
            return "it is part of a transaction log"
        if is_hidden(self._below_engine_folder(name), self._columns):
            return "a part of its path begins with an underscore or a dot"
        if any(self._has_log_in(folder) for folder in _folders_of(name)):
            return "a folder on its path is a Delta table of its own"
        if not self._stays_inside(name):
            return "a symbolic link leads out of the table's folder"
        file_key = f"{self._key}{name}"
        if file_key.startswith(self._others):
            return "it lies in the folder of another table"
        if any(_is_beside(file_key, database) for database in self._databases):
            return "it is the catalog's database, or a file beside it"
        if self._is_local and f"{self._root}/{name}".startswith(self._own_log):
            return "a symbolic link makes it part of the table's transaction log"
        return None

    def _below_engine_folder(self, name: str) -> str:
        for folder in self._engine_folders:
            if name.startswith(folder):
                return folder.rstrip("/")
        return name

    def _stays_inside(self, name: str) -> bool:
        if not self._is_local:
            return True
        folder = os.path.dirname(name)
        if folder not in self._is_real:
            path = f"{self._root}/{folder}".rstrip("/")
            self._is_real[folder] = os.path.realpath(path) == path
        return self._is_real[folder]

    def _has_log_in(self, folder: str) -> bool:
        if folder not in self._has_log:
            self._has_log[folder] = self._find_log(folder)
        return self._has_log[folder]

    def _find_log(self, folder: str) -> bool:
        if self._is_local:  # the log may be a symbolic link, even a broken one
            return os.path.lexists(f"{self._root}/{folder}/{LOG}")
        return next(iter(self._storage.list(f"{folder}/{LOG}")), None) is not None

    def _look_for_logs(self, names: Sequence[str]) -> None:
        """Look for logs in an object store in parallel, because every folder needs a request."""
        if self._is_local:
            return
        folders = {folder for name in names if is_inside(name) for folder in _folders_of(name)}
        unknown = sorted(folders - self._has_log.keys())
        if unknown:
            with ThreadPoolExecutor(_THREADS) as pool:
                self._has_log.update(zip(unknown, pool.map(self._find_log, unknown), strict=True))


def delete_data(storage: Storage, names: Iterable[str], deletable: Deletable) -> list[str]:
    """Delete the files that may be deleted; return their names."""
    allowed = deletable.allowed(names)
    storage.delete_many(allowed)
    return allowed


def is_hidden(name: str, partition_columns: Collection[str] | None) -> bool:
    """Return whether the file or one of its folders has a name that starts with `_` or a dot.

    The folder of change data and the folders of partition columns are not hidden. If
    `partition_columns` is None, every folder `name=value` counts as a partition.

    >>> [is_hidden(n, ["_p"]) for n in ("_delta_log/0.json", "_change_data/c", "_p=1/f", "a/.b")]
    [True, False, False, True]
    """
    *folders, last = name.split("/")
    if last.startswith(("_", ".")):
        return True
    for number, folder in enumerate(folders):
        if not folder.startswith(("_", ".")) or (number == 0 and folder == CHANGE_DATA):
            continue
        column, is_partition, _ = folder.partition("=")
        if not is_partition:
            return True
        if partition_columns is not None and unquote(column) not in partition_columns:
            return True
    return False


def _folders_of(name: str) -> list[str]:
    """Return all folders between the root and a file.

    >>> _folders_of("a/b/c.parquet")
    ['a', 'a/b']
    """
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _file_keys(path: str) -> set[str]:
    """Return the keys of a file: the key of its path and, for a symbolic link, of its target."""
    real = location_key(path).rstrip("/")
    folder, name = os.path.split(path)
    return {real, f"{location_key(folder)}{name}"}


def _is_beside(file_key: str, database: str) -> bool:
    """Return whether a file is a database or one of its files (`-wal`, `-shm`, `.wal`, …)."""
    return file_key == database or file_key.startswith((f"{database}-", f"{database}."))
