"""Which files that a log names are in storage, and how large they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from deltasql.engine.addresses import storage_of
from deltasql.model.deletion_vector import vector_file
from deltasql.storage import open_storage, parse_location
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.config import StorageSettings

_AT_ONCE = 16
_LISTED_FROM = 2000  # files in an object store: then to list them all asks less than to ask of each


def missing_files(location: str, files: pa.Table, settings: StorageSettings) -> list[str]:
    """Return the paths of listed files that cannot be read: they, or their deletion vector."""
    columns = (files["path"].to_pylist(), files["deletion_vector"].to_pylist())

    def is_gone(path: str, vector: str) -> bool:
        parsed = load_dv(vector)
        named = [path, None if parsed is None else vector_file(parsed)]
        places = (storage_of(location, each, settings) for each in named if each is not None)
        return not all(storage.exists(name) for storage, name in places)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deltasql-files") as pool:
        gone = list(pool.map(is_gone, *columns))
    return [path for path, lost in zip(columns[0], gone, strict=True) if lost]


def file_sizes(location: str, files: pa.Table, settings: StorageSettings) -> list[int | None]:
    """Return how many bytes each listed file has; None when it, or its deletion vector, is gone."""
    known: dict[str, int] | None = None
    own = open_storage(location, settings)
    if len(files) >= _LISTED_FROM and not parse_location(location).is_local:
        known = {each.name: each.size for each in own.list()}

    def size_of(path: str) -> int | None:
        storage, name = storage_of(location, path, settings)
        if known is not None and storage.location == own.location:
            return known.get(name)
        try:
            return storage.size(name)
        except FileNotFoundError:
            return None

    def size(path: str, vector: str) -> int | None:
        parsed = load_dv(vector)
        beside = None if parsed is None else vector_file(parsed)
        if beside is not None and size_of(beside) is None:
            return None
        return size_of(path)

    columns = (files["path"].to_pylist(), files["deletion_vector"].to_pylist())
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deltasql-files") as pool:
        return list(pool.map(size, *columns))
