"""Delta tables below a folder of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.storage import Storage

_LOG = "_delta_log/"


def find_tables(storage: Storage) -> Iterator[str]:
    """Yield the folders that hold a `_delta_log`, relative to the root; '' is the root itself.

    The rest of a table is not listed: what lies in it is its own.
    """
    after: str | None = None
    while True:
        folder = _next_table(storage, after)
        if folder is None:
            return
        yield folder.removesuffix("/")
        if not folder:
            return
        # '0' follows '/' in the order of names, so this is past all that the folder holds.
        after = f"{folder.removesuffix('/')}0"


def _next_table(storage: Storage, after: str | None) -> str | None:
    for file in storage.list(start_after=after):
        if file.name.startswith(_LOG):
            return ""
        folder, found, _ = file.name.partition(f"/{_LOG}")
        if found:
            return f"{folder}/"
    return None
