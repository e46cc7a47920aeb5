"""Files that lie in a table's folder and that no version knows, found by listing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, TypeAlias

from deltasql.storage import local_path, open_storage, parse_location
from deltasql.storage.deletion import LOG, Deletable, is_hidden

if TYPE_CHECKING:
    from deltasql.model.progress import Meter
    from deltasql.storage import FileInfo, Storage

_LOG_INSIDE = f"/{LOG}/"
_RANGES = 64


@dataclass(slots=True)
class Strays:
    """What a listing found."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Names of files that may go, with their sizes."""
    tables: set[str] = field(default_factory=set)
    """Folders, with a slash at the end, that have a log of their own: they are other tables, also
    if no catalog of ours knows them. And folders that are such a log, by a link."""


@dataclass(frozen=True, slots=True)
class StrayRule:
    """Which of the files below a location may go; it travels to whoever lists them."""

    location: str
    before_ms: int
    partition_columns: tuple[str, ...] = ()

    def sift(self, files: Iterable[FileInfo], needed: Set[str], into: Strays) -> None:
        """Keep the old files that are not needed, and other tables."""
        # What lies in an object store is known when all of it was listed: see `Strays.tables`.
        on_disk = None
        if parse_location(self.location).is_local:
            on_disk = Deletable(open_storage(self.location), partition_columns=None)
        for file in files:
            folder, log, _ = file.name.partition(_LOG_INSIDE)
            if log:
                into.tables.add(f"{folder}/")
            elif file.name.endswith(LOG):
                into.tables.update(linked_log(self.location, file.name))
            if file.modified_ms > self.before_ms or file.name in needed:
                continue
            if is_hidden(file.name, self.partition_columns):
                continue
            if on_disk is None or on_disk.refusal(file.name) is None:
                into.sizes[file.name] = file.size


FindStrays: TypeAlias = "Callable[[StrayRule, Storage, Set[str], Meter], Strays]"
"""Lists the files below a location: a rule, where, the names that are needed, who is told."""

Range: TypeAlias = tuple[str, str]
"""The names after the first one and before the second; an empty one is no bound."""


def find_strays(rule: StrayRule, storage: Storage, needed: Set[str], meter: Meter) -> Strays:
    """List everything in this process."""
    found = Strays()
    rule.sift(meter.over("listing", "files", storage.list(), 0), needed, found)
    return found


def ranges_of(storage: Storage, at_most: int = _RANGES) -> list[Range]:
    """Divide all names into ranges of about as many folders each.

    Every name is in one of them, also one that came after the folders were looked at.
    """
    seen: list[str] = []
    level = [""]
    # Where a start is not sent along, every range would be listed from the first name on.
    while storage.starts_anywhere and level and len(seen) < at_most:
        level = [each for folder in level for each in storage.folders(folder)]
        seen += level
    folders = sorted(seen)
    count = min(at_most, len(folders))
    bounds = ["", *(folders[len(folders) * number // count] for number in range(1, count)), ""]
    return list(pairwise(bounds))


def list_range(storage: Storage, wanted: Range) -> Iterable[FileInfo]:
    """List the files of a range."""
    first, end = wanted
    files = storage.list(start_after=first or None)
    return takewhile(lambda file: file.name < end, files) if end else files


def linked_log(location: str, name: str) -> list[str]:
    """Return the folders of a name that may be a link to a log: the table, and the log."""
    if name.rpartition("/")[2] != LOG or not parse_location(location).is_local:
        return []
    root = os.path.realpath(local_path(location))
    found = [os.path.dirname(name)]
    target = os.path.realpath(f"{root}/{name}")
    if target.startswith(f"{root}/"):
        found.append(os.path.relpath(target, root))
    return [f"{each}/" for each in found if each]
