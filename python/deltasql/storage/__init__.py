"""Bytes at a location: local disk and object stores behind one small interface.

What every storage promises:

- `put_if_absent` creates a file whole or not at all; of many who try, one wins.
- `put` and `writer` replace a file whole or not at all: nobody reads half of it.
- The content of a file is on the disk before its name appears, so after a power loss a file that
  is there is never empty or short. Its name is on the disk when the call returns, or, for
  several files at once, after `flush_folder`.
- A missing file is a `FileNotFoundError`, anything else a `TxnLogStorageError`; neither ever
  shows a secret.
- A storage may be shared by threads. One on local disk may be used in a forked child, one in an
  object store only if no request was made before the fork.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> storage = open_storage(folder.name)
>>> storage.put_if_absent("a/1.json", b"{}"), storage.put_if_absent("a/1.json", b"[]")
(True, False)
>>> [(file.name, file.size) for file in storage.list("a/")]
[('a/1.json', 2)]
"""

from deltasql.storage.base import FileInfo, Sink, Storage
from deltasql.storage.location import (
    Location,
    absolute_location,
    join_location,
    local_path,
    parse_location,
)
from deltasql.storage.opening import open_storage

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
]
