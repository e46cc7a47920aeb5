"""Find files in a table's folder that no version references, by listing the folder."""

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
class UnreferencedFiles:
    """The result of listing a table's folder."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Names of files that may be deleted, with their sizes."""
    tables: set[str] = field(default_factory=set)
    """Folders of other tables, with a slash at the end.

    These are folders that contain a `_delta_log`, even if the table is not in a catalog. If a
    `_delta_log` is a link, the folder that the link points to is also included.
    """


@dataclass(frozen=True, slots=True)
class VacuumRule:
    """Decides which listed files below a location a full vacuum may delete.

    It is sent to Spark executors, so it contains only plain values.
    """

    location: str
    before_ms: int
    partition_columns: tuple[str, ...] = ()

    def collect(self, files: Iterable[FileInfo], needed: Set[str], into: UnreferencedFiles) -> None:
        """Add old files that are not needed, and folders of other tables, to `into`."""
        # On a local disk, `Deletable` checks whether a folder belongs to another table. In an
        # object store, this is known only after the whole listing, so callers use
        # `UnreferencedFiles.tables`.
        on_disk = None
        if parse_location(self.location).is_local:
            on_disk = Deletable(open_storage(self.location), partition_columns=None)
        for file in files:
            folder, log, _ = file.name.partition(_LOG_INSIDE)
            if log:
                into.tables.add(f"{folder}/")
            elif file.name.endswith(LOG):
                into.tables.update(folders_protected_by_log_link(self.location, file.name))
            if file.modified_ms > self.before_ms or file.name in needed:
                continue
            if is_hidden(file.name, self.partition_columns):
                continue
            if on_disk is None or on_disk.reason_against(file.name) is None:
                into.sizes[file.name] = file.size


FindUnreferenced: TypeAlias = "Callable[[VacuumRule, Storage, Set[str], Meter], UnreferencedFiles]"
"""A function that finds unreferenced files: (rule, storage, needed names, meter) -> result."""

Range: TypeAlias = tuple[str, str]
"""A range of file names, (start, end): names > start and < end. An empty string means no bound."""


def find_unreferenced(
    rule: VacuumRule, storage: Storage, needed: Set[str], meter: Meter
) -> UnreferencedFiles:
    """Find unreferenced files by listing the folder in this process."""
    found = UnreferencedFiles()
    rule.collect(meter.over("listing", "files", storage.list(), 0), needed, found)
    return found


def ranges_of(storage: Storage, at_most: int = _RANGES) -> list[Range]:
    """Divide all names into ranges with about the same number of folders.

    Every name is in exactly one range, even if its file is created later.
    """
    seen: list[str] = []
    level = [""]
    # A storage that cannot start a listing at a name would list each range from the beginning, so
    # it gets a single range.
    while storage.starts_anywhere and level and len(seen) < at_most:
        level = [each for folder in level for each in storage.folders(folder)]
        seen += level
    folders = sorted(seen)
    count = min(at_most, len(folders))
    bounds = ["", *(folders[len(folders) * number // count] for number in range(1, count)), ""]
    return list(pairwise(bounds))


def list_range(storage: Storage, wanted: Range) -> Iterable[FileInfo]:
    """List the files whose names are in a range; stop at its end, because names are sorted."""
    first, end = wanted
    files = storage.list(start_after=first or None)
    return takewhile(lambda file: file.name < end, files) if end else files


def folders_protected_by_log_link(location: str, name: str) -> list[str]:
    """Return the folders that a symbolic link called `_delta_log` marks as a Delta table.

    These are the folder of the link and, if it is below the location, the folder it points to. For
    any other name, the list is empty.
    """
    if name.rpartition("/")[2] != LOG or not parse_location(location).is_local:
        return []
    root = os.path.realpath(local_path(location))
    found = [os.path.dirname(name)]
    target = os.path.realpath(f"{root}/{name}")
    if target.startswith(f"{root}/"):
        found.append(os.path.relpath(target, root))
    return [f"{each}/" for each in found if each]
