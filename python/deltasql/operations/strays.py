"""Files that lie in a table's folder and that no version knows, found by listing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, TypeAlias

from deltasql.storage import local_path, parse_location

if TYPE_CHECKING:
    from deltasql.model.progress import Meter
    from deltasql.storage import FileInfo, Storage

_CHANGE_DATA = "_change_data"
_LOG = "_delta_log"
_LOG_INSIDE = f"/{_LOG}/"
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
        stays_inside, is_own = linked_nowhere(self.location), in_no_table(self.location)
        for file in files:
            folder, log, _ = file.name.partition(_LOG_INSIDE)
            if log:
                into.tables.add(f"{folder}/")
            elif file.name.endswith(_LOG):
                into.tables.update(linked_log(self.location, file.name))
            if file.modified_ms > self.before_ms or file.name in needed:
                continue
            if is_hidden(file.name, self.partition_columns):
                continue
            if stays_inside(file.name) and is_own(file.name):
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


def is_hidden(name: str, partition_columns: Sequence[str]) -> bool:
    """Tell whether a name belongs to others: the log, and what starts with `_` or a dot.

    >>> [is_hidden(n, ["_p"]) for n in ("_delta_log/0.json", "_change_data/c", "_p=1/f", "a/.b")]
    [True, False, False, True]
    """
    for number, part in enumerate(name.split("/")):
        of_partition = any(part.startswith(f"{column}=") for column in partition_columns)
        if part.startswith(("_", ".")) and not (
            of_partition or (number == 0 and part == _CHANGE_DATA)
        ):
            return True
    return False


def linked_nowhere(location: str) -> Callable[[str], bool]:
    """Return a test whether a file is really below a location: a link may lead elsewhere."""
    if not parse_location(location).is_local:
        return lambda name: True
    root = os.path.realpath(local_path(location))

    @cache
    def is_inside(folder: str) -> bool:
        return os.path.realpath(f"{root}/{folder}") == f"{root}/{folder}".rstrip("/")

    return lambda name: is_inside(os.path.dirname(name))


def linked_log(location: str, name: str) -> list[str]:
    """Return the folders of a name that may be a link to a log: the table, and the log."""
    if name.rpartition("/")[2] != _LOG or not parse_location(location).is_local:
        return []
    root = os.path.realpath(local_path(location))
    found = [os.path.dirname(name)]
    target = os.path.realpath(f"{root}/{name}")
    if target.startswith(f"{root}/"):
        found.append(os.path.relpath(target, root))
    return [f"{each}/" for each in found if each]


def in_no_table(location: str) -> Callable[[str], bool]:
    """Return a test whether no folder between a file and a location has a log of its own.

    A log may be a link, which a listing need not follow.
    """
    if not parse_location(location).is_local:
        return lambda name: True
    root = local_path(location)

    @cache
    def has_log(folder: str) -> bool:
        return os.path.lexists(f"{root}/{folder}/{_LOG}")

    @cache
    def is_free(folder: str) -> bool:
        parts = folder.split("/") if folder else []
        return not any(has_log("/".join(parts[:end])) for end in range(1, len(parts) + 1))

    return lambda name: is_free(os.path.dirname(name))
