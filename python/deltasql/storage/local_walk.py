"""List files of a local folder in the order of an object store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deltasql.storage.base import FileInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY = ".deltasql-"
"""The prefix of the names of incomplete files."""
_LOG = "_delta_log"


def walk(root: str, folder: str, after: str, seen: set[str]) -> Iterator[FileInfo]:
    """Yield the files below a folder whose names sort after `after`.

    `folder` is empty or ends with a slash. `seen` are the real paths of the folders read so far. A
    symbolic link to one of them, to a folder inside it or to a folder above it is not followed,
    because links can form a cycle. Such a link is yielded only if its name is `_delta_log`.
    """
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            # As in an object store, the slash of a folder counts for the order.
            found = sorted((f"{folder}{e.name}{'/' if e.is_dir() else ''}", e) for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        is_folder, is_temporary = name.endswith("/"), entry.name.startswith(TEMPORARY)
        if is_folder and not (name > after or after.startswith(name)):
            continue
        if is_folder and (not entry.is_symlink() or _leads_on(entry, seen)):
            yield from walk(root, name, after, seen)
        elif entry.name == _LOG if is_folder else name > after and not is_temporary:
            try:
                facts = entry.stat(follow_symlinks=not is_folder)
            except FileNotFoundError:  # deleted since the folder was read
                continue
            yield FileInfo(name.rstrip("/"), facts.st_size, facts.st_mtime_ns // 1_000_000)


def _leads_on(link: os.DirEntry[str], seen: set[str]) -> bool:
    """Return whether a link leads to a folder that was not read yet, and add it to `seen`."""
    real = os.path.realpath(link.path).rstrip("/") + "/"
    for each in seen:
        known = each.rstrip("/") + "/"
        if real.startswith(known) or known.startswith(real):
            return False
    seen.add(real)
    return True
