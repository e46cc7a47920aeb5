"""Files at a location: one interface for the local disk and object stores.

Every storage guarantees:

- `put_if_absent` creates a file atomically. If several callers try at the same time, one succeeds.
- `put` and `writer` replace a file atomically, so that no reader sees a part of it.
- The content of a file is flushed to disk before the file gets its name, so an existing file is
  complete even after a power loss. The name is flushed when the call returns or, for several files
  together, by `flush_folder`.
- A missing file raises `FileNotFoundError`, and any other failure raises `TxnLogStorageError`.
  Neither error contains a secret.
- A storage is thread-safe. After a fork, a local storage works in the child. An object store works
  in the child only if the parent made no request before the fork.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> storage = open_storage(folder.name)
>>> storage.put_if_absent("a/1.json", b"{}"), storage.put_if_absent("a/1.json", b"[]")
(True, False)
>>> [(file.name, file.size) for file in storage.list("a/")]
[('a/1.json', 2)]
"""

from __future__ import annotations

from deltasql.config import StorageSettings
from deltasql.storage.base import FileInfo, Sink, Storage
from deltasql.storage.local import LocalStorage
from deltasql.storage.location import (
    Location,
    absolute_location,
    data_name,
    is_absolute,
    join_location,
    local_path,
    parse_location,
    resolve_path,
)
from deltasql.storage.object_store import ObjectStorage

__all__ = [
    "FileInfo",
    "Location",
    "Sink",
    "Storage",
    "absolute_location",
    "join_location",
    "local_path",
    "open_storage",
    "parse_location",
    "storage_of",
]

_DEFAULTS = StorageSettings()


def open_storage(location: str, settings: StorageSettings | None = None) -> Storage:
    """Return the storage of a location. The call is cheap, because clients are shared.

    >>> open_storage("file:///data/sales%20eu")
    LocalStorage('file:///data/sales%20eu')
    """
    place = parse_location(location)
    if place.is_local:
        return LocalStorage(place)
    return ObjectStorage.open(place, settings or _DEFAULTS)


def storage_of(location: str, path: str, settings: StorageSettings) -> tuple[Storage, str]:
    """Return the storage of a file in the log, and the file's name in that storage.

    The file may be outside the table's location.
    """
    if not is_absolute(path):
        return open_storage(location, settings), data_name(parse_location(location), path)
    resolved = resolve_path(location, path)
    folder, _, name = resolved.path.rpartition("/")
    root = resolved.root or "file://"
    return open_storage(join_location(root, *folder.strip("/").split("/")), settings), name
