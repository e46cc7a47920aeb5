"""Delta tables below a folder of a lake."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogTableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.storage import Storage

_LOG = "_delta_log/"
_LOOKED_AT = 10_000  # files of a folder without a log


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


def no_table(storage: Storage) -> TxnLogTableNotFoundError:
    """Return the error of a place without a Delta table, with what is there instead."""
    location = storage.location
    names = [each.name for each in islice(storage.list(), _LOOKED_AT)]
    below = next((name.partition(f"/{_LOG}")[0] for name in names if f"/{_LOG}" in name), None)
    why, what_to_do = "its _delta_log holds no commit", "Name the folder that holds _delta_log."
    if not names:
        why, what_to_do = "nothing is there", "Check the path, and the options of the store."
    elif below is not None:
        why = f"tables lie below it, such as {below}"
        what_to_do = "Name one of them, or import all with --recursive (import_tables)."
    return TxnLogTableNotFoundError(
        f"there is no Delta table at {location}: {why}", table=location, help=what_to_do
    )


def _next_table(storage: Storage, after: str | None) -> str | None:
    for file in storage.list(start_after=after):
        if file.name.startswith(_LOG):
            return ""
        folder, found, _ = file.name.partition(f"/{_LOG}")
        if found:
            return f"{folder}/"
    return None
