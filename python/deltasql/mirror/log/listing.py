"""List a `_delta_log` folder: commits, checkpoints, checksums and other files by version."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from deltasql.exceptions import LogParseError, TxnLogTableNotFoundError, VersionGapError
from deltasql.model.json_text import load_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltasql.storage import FileInfo, Storage

LOG_FOLDER = "_delta_log/"
LAST_CHECKPOINT = "_delta_log/_last_checkpoint"

# Delta's versions are signed 64-bit integers, so a larger number is not a version.
_MAX_VERSION = 2**63 - 1
_NAME = re.compile(
    r"_delta_log/(?P<version>\d{20})\."
    r"(?:(?P<commit>json)|(?P<checksum>crc)"
    r"|(?P<classic>checkpoint\.parquet)"
    r"|checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    r"|checkpoint\.(?P<v2>[0-9a-f]{8}-[0-9a-f-]{27})\.(?:json|parquet)"
    r"|(?P<until>\d{20})\.compacted\.json)"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint, with all its parts."""

    version: int
    kind: Literal["classic", "multipart", "v2"]
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """A compacted log file: the commits of several versions."""

    first: int
    last: int
    file: FileInfo


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of one `_delta_log`."""

    location: str
    commits: Mapping[int, FileInfo]
    checkpoints: tuple[Checkpoint, ...]
    checksums: Mapping[int, FileInfo]
    has_last_checkpoint: bool = False
    compactions: tuple[CompactedFile, ...] = ()
    incomplete: tuple[str, ...] = ()
    """Descriptions of multi-part checkpoints with missing parts."""
    others: tuple[FileInfo, ...] = field(default=(), repr=False)

    @property
    def last_version(self) -> int:
        """The latest version with a commit or a checkpoint."""
        return max([*self.commits, *(each.version for each in self.checkpoints)])

    @property
    def first_version(self) -> int:
        """The oldest version that can be read together with all later ones.

        This is 0 or the version of a checkpoint. Commits before a gap are ignored.
        """
        start = self.last_version + 1
        while start - 1 in self.commits:
            start -= 1
        if start == 0:
            return 0
        covering = (each.version for each in self.checkpoints if each.version >= start - 1)
        return min(covering, default=start)

    def checkpoint_for(self, version: int) -> Checkpoint | None:
        """Return the latest checkpoint at or before a version; None if there is none."""
        fitting = [each for each in self.checkpoints if each.version <= version]
        return max(fitting, key=lambda each: each.version, default=None)

    def up_to(self, version: int) -> LogListing:
        """Return the listing without the files of later versions."""
        return replace(
            self,
            commits={each: file for each, file in self.commits.items() if each <= version},
            checkpoints=tuple(each for each in self.checkpoints if each.version <= version),
            checksums={each: file for each, file in self.checksums.items() if each <= version},
            compactions=tuple(each for each in self.compactions if each.last <= version),
        )

    def without(self, checkpoint: Checkpoint) -> LogListing:
        """Return the listing without a checkpoint."""
        kept = tuple(each for each in self.checkpoints if each is not checkpoint)
        return replace(self, checkpoints=kept)

    def commits_from(self, first: int, version: int) -> list[FileInfo]:
        """Return the commit files first..version; raise VersionGapError if some are missing."""
        gaps = self.gaps(first, version)
        if gaps:
            raise VersionGapError(
                f"the log at {self.location} cannot be read at version {version}: "
                f"{_describe(gaps)} missing and no checkpoint replaces them"
                + "".join(f"; {each}" for each in self.incomplete),
                location=self.location,
                first_missing=gaps[0][0],
                last_missing=gaps[-1][1],
                help="Restore the files from a copy, or publish them again from the database.",
            )
        return [self.commits[each] for each in range(first, version + 1)]

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of versions without a commit file, between `first` and `last`.

        Both ends of each range are included. The function does not loop over all the versions,
        because a misnamed file may have a version that is very far from the others.
        """
        present = sorted(each for each in self.commits if first <= each <= last)
        edges = pairwise([first - 1, *present, last + 1])
        return [(low + 1, high - 1) for low, high in edges if high - low > 1]


def find_log(storage: Storage) -> LogListing | None:
    """List the log of a table; return None if it has no commit and no checkpoint."""
    listing = sort_files(storage.location, storage.list(LOG_FOLDER))
    return listing if listing.commits or listing.checkpoints else None


def list_log(storage: Storage) -> LogListing:
    """List the log of a table; raise TxnLogTableNotFoundError if there is none."""
    listing = find_log(storage)
    if listing is None:
        raise TxnLogTableNotFoundError(
            f"there is no Delta table at {storage.location}: its _delta_log contains no commit",
            table=storage.location,
            help="Give the folder that contains _delta_log, and check the storage options.",
        )
    return listing


def flush_log(storage: Storage) -> None:
    """Flush to disk a log that another program wrote, because the database cannot restore it."""
    storage.flush(each.name for each in storage.list(LOG_FOLDER))


def sort_files(location: str, files: Iterable[FileInfo]) -> LogListing:
    """Classify the files of a log folder; files in its subfolders go to `others`."""
    commits: dict[int, FileInfo] = {}
    checksums: dict[int, FileInfo] = {}
    checkpoints: list[Checkpoint] = []
    parts: dict[tuple[int, int], list[FileInfo]] = {}
    compactions: list[CompactedFile] = []
    others: list[FileInfo] = []
    has_last_checkpoint = False
    for each in files:
        match = _NAME.fullmatch(each.name)
        if match is None or int(match["version"]) > _MAX_VERSION:
            has_last_checkpoint |= each.name == LAST_CHECKPOINT
            others.append(each)
            continue
        version = int(match["version"])
        if match["commit"]:
            commits[version] = each
        elif match["checksum"]:
            checksums[version] = each
        elif match["classic"]:
            checkpoints.append(Checkpoint(version, "classic", (each,)))
        elif match["parts"]:
            parts.setdefault((version, int(match["parts"])), []).append(each)
        elif match["v2"]:
            checkpoints.append(Checkpoint(version, "v2", (each,)))
        else:
            compactions.append(CompactedFile(version, int(match["until"]), each))
    incomplete: list[str] = []
    for (version, count), found in parts.items():
        # A multi-part checkpoint is valid only if all its parts exist.
        if len(found) == count:
            checkpoints.append(Checkpoint(version, "multipart", tuple(found)))
        else:
            incomplete.append(f"checkpoint {version} has {len(found)} of {count} parts")
    return LogListing(
        location,
        commits,
        tuple(sorted(checkpoints, key=lambda each: each.version)),
        checksums,
        has_last_checkpoint,
        tuple(compactions),
        tuple(incomplete),
        tuple(others),
    )


def read_json(name: str, data: bytes, *, needs: str) -> dict[str, Any]:
    """Parse a log file with one JSON object, which must have the integer member `needs`."""
    try:
        found = load_json(data)
    except ValueError as error:
        raise LogParseError(f"{name} is not JSON: {error}", path=name) from error
    if not isinstance(found, dict) or not isinstance(found.get(needs), int):
        raise LogParseError(f"{name} has no valid {needs}", path=name)
    return found


def _describe(gaps: list[tuple[int, int]]) -> str:
    first, last = gaps[0][0], gaps[-1][1]
    if first == last:
        return f"version {first} is"
    if len(gaps) == 1:
        return f"versions {first} to {last} are"
    count = sum(high - low + 1 for low, high in gaps)
    return f"{count} versions from {first} to {last} are"
