"""The files below a folder of a local disk, in the order of an object store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deltasql.storage.base import FileInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY = ".deltasql-"
"""How the names of files begin that are not complete yet."""
_LOG = "_delta_log"


def walk(root: str, folder: str, after: str, seen: set[str]) -> Iterator[FileInfo]:
    """Yield the files below a folder (empty, or ending in a slash) whose names come after one.

    `seen` are the real folders that were entered so far. A link to one, or into it, or to what
    holds it, shows nothing new: links in a ring would never end. Of these a log is told by name.
    """
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            # As in an object store, a folder's slash takes part in the order.
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
    """Tell whether a link leads to a folder of its own, which is seen from now on."""
    real = os.path.realpath(link.path).rstrip("/") + "/"
    for each in seen:
        known = each.rstrip("/") + "/"
        if real.startswith(known) or known.startswith(real):
            return False
    seen.add(real)
    return True
