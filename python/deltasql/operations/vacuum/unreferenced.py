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
    """Folders, with a slash at the end, that contain a `_delta_log` and so are other tables, even
    if no catalog lists them; and folders that a link named `_delta_log` points to."""


@dataclass(frozen=True, slots=True)
class VacuumRule:
    """Decides which listed files below a location a full vacuum may delete.

    It is sent to Spark executors, so it holds plain values only.
    """

    location: str
    before_ms: int
    partition_columns: tuple[str, ...] = ()

    def collect(self, files: Iterable[FileInfo], needed: Set[str], into: UnreferencedFiles) -> None:
        """Add the old files that are not needed, and other tables, to `into`."""
        # In an object store, other tables are known only after the whole listing: callers use
        # `UnreferencedFiles.tables`. On a disk, `Deletable` looks at the folders themselves.
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


FindUnreferenced: TypeAlias = "Callable[[VacuumRule, Storage, Set[str], Meter], UnreferencedFiles]"
"""Lists the files below a location: (rule, storage, needed names, progress meter) -> result."""

Range: TypeAlias = tuple[str, str]
"""The names after the first one and before the second; an empty string is no bound."""


def find_unreferenced(
    rule: VacuumRule, storage: Storage, needed: Set[str], meter: Meter
) -> UnreferencedFiles:
    """Find unreferenced files by listing the folder in this process."""
    found = UnreferencedFiles()
    rule.collect(meter.over("listing", "files", storage.list(), 0), needed, found)
    return found


def ranges_of(storage: Storage, at_most: int = _RANGES) -> list[Range]:
    """Divide all names into ranges with about the same number of folders.

    Every name is in one range, also a name that is created after the folders were listed.
    """
    seen: list[str] = []
    level = [""]
    # If the store cannot start a listing at a name, each range would be listed from the beginning.
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
    """Return the table and the log folder if a name is a link called `_delta_log`, else nothing."""
    if name.rpartition("/")[2] != LOG or not parse_location(location).is_local:
        return []
    root = os.path.realpath(local_path(location))
    found = [os.path.dirname(name)]
    target = os.path.realpath(f"{root}/{name}")
    if target.startswith(f"{root}/"):
        found.append(os.path.relpath(target, root))
    return [f"{each}/" for each in found if each]
