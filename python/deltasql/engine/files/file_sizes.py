"""Look up the sizes of a table's files in storage, and find missing files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql.model.actions import DeletionVector
from deltasql.model.deletion_vector import vector_file
from deltasql.model.progress import Meter
from deltasql.storage import open_storage, parse_location, storage_of
from deltasql.storage.location import is_absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from deltasql.config import StorageSettings
    from deltasql.storage import Storage

_AT_ONCE = 16
_CHUNK = 64  # files that one thread looks up at a time
# For at least this many files in an object store, list the folder: a listing needs fewer requests
# than one lookup per file.
_LISTED_FROM = 2000


def missing_files(location: str, files: pa.Table, settings: StorageSettings) -> list[str]:
    """Return the paths of listed files that are missing, or whose deletion vector is missing."""
    return FileSizes(location, settings).missing(files)


class FileSizes:
    """Looks up the sizes of a table's files, including files in folders of other tables.

    The files of one folder are looked up together. If there are many of them in an object store,
    the folder is listed once, and later lookups use the listing.
    """

    def __init__(self, location: str, settings: StorageSettings) -> None:
        self._location, self._settings = location, settings
        self._own = open_storage(location, settings)
        self._folders: dict[str, _Folder] = {}

    def missing(self, files: pa.Table) -> list[str]:
        """Return the paths of listed files that are missing, or whose deletion vector is."""
        paths = files["path"].to_pylist()
        return [path for path, size in zip(paths, self.of(files), strict=True) if size is None]

    def of(self, files: pa.Table, meter: Meter | None = None) -> list[int | None]:
        """Return the size of each listed file.

        The size is None if the file or its deletion vector is missing.
        """
        paths = files["path"].to_pylist()
        vectors = [_vector_path(text) for text in files["deletion_vector"].to_pylist()]
        wanted = {*paths, *(each for each in vectors if each is not None)}
        counter = meter or Meter()
        known = dict(counter.over("looking for files", "files", self._look_up(wanted), len(wanted)))
        return [
            None if vector is not None and known[vector] is None else known[path]
            for path, vector in zip(paths, vectors, strict=True)
        ]

    def _look_up(self, paths: Iterable[str]) -> Iterator[tuple[str, int | None]]:
        wanted: dict[_Folder, dict[str, str]] = {}
        for path in paths:
            folder, name = self._locate(path)
            wanted.setdefault(folder, {})[path] = name
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deltasql-files") as pool:
            for folder, names in wanted.items():
                yield from zip(names, folder.sizes([*names.values()], pool), strict=True)

    def _locate(self, path: str) -> tuple[_Folder, str]:
        if not is_absolute(path):
            return self._folder("", self._own), self._own.data_name(path)
        # The file belongs to another table, as in a shallow clone. Remove the partition folders
        # (`day=…`) from the path, so that all files of that table share one folder and one listing.
        parts = path.split("/")
        depth = len(parts) - 1
        while depth > 1 and "=" in parts[depth - 1]:
            depth -= 1
        base = "/".join(parts[:depth])
        known = self._folders.get(base)
        if known is None:
            storage, _ = storage_of(self._location, f"{base}/_", self._settings)
            known = self._folder(base, storage)
        return known, unquote("/".join(parts[depth:]))

    def _folder(self, base: str, storage: Storage) -> _Folder:
        return self._folders.setdefault(base, _Folder(storage))


class _Folder:
    """One folder, and its listing if the folder was listed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._is_local = parse_location(storage.location).is_local
        # Maps the hash of a file name to the size. A million names would take too much memory.
        self._listed: dict[int, int] | None = None

    def sizes(self, names: list[str], pool: ThreadPoolExecutor) -> Iterator[int | None]:
        """Yield the size of each file; None if it is missing."""
        if self._listed is None and not self._is_local and len(names) >= _LISTED_FROM:
            self._listed = {hash(each.name): each.size for each in self._storage.list()}
        if self._listed is not None:
            yield from (self._listed.get(hash(name)) for name in names)
            return
        rest = iter(names)
        chunks = [*iter(lambda: [*islice(rest, _CHUNK)], [])]
        for sizes in pool.map(lambda some: [self._size(name) for name in some], chunks):
            yield from sizes

    def _size(self, name: str) -> int | None:
        try:
            return self._storage.size(name)
        except FileNotFoundError:
            return None


def _vector_path(text: str | None) -> str | None:
    return vector_file(DeletionVector.from_body(json.loads(text))) if text else None
