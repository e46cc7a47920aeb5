"""What lies in a `_delta_log` folder: commits, checkpoints, checksums, by version."""

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
ASIDE_FOLDER = "_delta_log/_aside/"

# Delta's versions are signed numbers of 64 bits; a larger one is the name of something else.
_LAST_VERSION = 2**63 - 1
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
    """A checkpoint that is there with all its parts."""

    version: int
    kind: Literal["classic", "multipart", "v2"]
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class Compaction:
    """A file that holds several commits as one."""

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
    compactions: tuple[Compaction, ...] = ()
    incomplete: tuple[str, ...] = ()
    """Checkpoints of several parts that lack some, in words."""
    others: tuple[FileInfo, ...] = field(default=(), repr=False)

    @property
    def last_version(self) -> int:
        """The latest version that the files tell of."""
        return max([*self.commits, *(each.version for each in self.checkpoints)])

    @property
    def first_version(self) -> int:
        """The oldest version from which on all can be read: the first, or that of a checkpoint.

        Commits before a hole are of no use to what comes after it.
        """
        start = self.last_version + 1
        while start - 1 in self.commits:
            start -= 1
        if start == 0:
            return 0
        covering = (each.version for each in self.checkpoints if each.version >= start - 1)
        return min(covering, default=start)

    def checkpoint_for(self, version: int) -> Checkpoint | None:
        """Return the latest checkpoint that is no later than a version."""
        fitting = [each for each in self.checkpoints if each.version <= version]
        return max(fitting, key=lambda each: each.version, default=None)

    def up_to(self, version: int) -> LogListing:
        """Return the log as it was when this version was its last."""
        return replace(
            self,
            commits={each: file for each, file in self.commits.items() if each <= version},
            checkpoints=tuple(each for each in self.checkpoints if each.version <= version),
            checksums={each: file for each, file in self.checksums.items() if each <= version},
            compactions=tuple(each for each in self.compactions if each.last <= version),
        )

    def without(self, checkpoint: Checkpoint) -> LogListing:
        """Return the log as it is for who cannot use a checkpoint."""
        kept = tuple(each for each in self.checkpoints if each is not checkpoint)
        return replace(self, checkpoints=kept)

    def commits_from(self, first: int, version: int) -> list[FileInfo]:
        """Return the commits first..version; an error names those that are missing."""
        gaps = self.gaps(first, version)
        if gaps:
            raise VersionGapError(
                f"the log at {self.location} cannot be read at version {version}: "
                f"{_shown(gaps)} missing and no checkpoint stands in"
                + "".join(f"; {each}" for each in self.incomplete),
                location=self.location,
                first_missing=gaps[0][0],
                last_missing=gaps[-1][1],
                help="Restore the files from a copy, or publish them again from the database.",
            )
        return [self.commits[each] for each in range(first, version + 1)]

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the versions of first..last without a commit file, as (first, last) of each gap.

        A file with a stray name may lie very far from the others, so versions are not counted up.
        """
        present = sorted(each for each in self.commits if first <= each <= last)
        edges = pairwise([first - 1, *present, last + 1])
        return [(low + 1, high - 1) for low, high in edges if high - low > 1]


def find_log(storage: Storage) -> LogListing | None:
    """List a table's log; None when there is none."""
    listing = sort_files(storage.location, storage.list(LOG_FOLDER))
    return listing if listing.commits or listing.checkpoints else None


def list_log(storage: Storage) -> LogListing:
    """List a table's log; an error when there is none."""
    listing = find_log(storage)
    if listing is None:
        raise TxnLogTableNotFoundError(
            f"there is no Delta table at {storage.location}: its _delta_log holds no commit",
            table=storage.location,
            help="Name the folder that holds _delta_log; check the storage options.",
        )
    return listing


def flush_log(storage: Storage) -> None:
    """Let a log that others wrote survive a power loss: SQL will not write it again."""
    storage.flush(each.name for each in storage.list(LOG_FOLDER))


def sort_files(location: str, files: Iterable[FileInfo]) -> LogListing:
    """Sort the files of a log folder by what they are; folders below it are not the log."""
    commits: dict[int, FileInfo] = {}
    checksums: dict[int, FileInfo] = {}
    checkpoints: list[Checkpoint] = []
    parts: dict[tuple[int, int], list[FileInfo]] = {}
    compactions: list[Compaction] = []
    others: list[FileInfo] = []
    has_last_checkpoint = False
    for each in files:
        match = _NAME.fullmatch(each.name)
        if match is None or int(match["version"]) > _LAST_VERSION:
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
            compactions.append(Compaction(version, int(match["until"]), each))
    incomplete: list[str] = []
    for (version, count), found in parts.items():
        # One whose writer died half-way is no checkpoint.
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


def read_last_checkpoint(storage: Storage) -> dict[str, Any] | None:
    """Return the hint to the latest checkpoint; None when there is none."""
    try:
        data = storage.read(LAST_CHECKPOINT)
    except FileNotFoundError:
        return None
    return read_json(LAST_CHECKPOINT, data, needs="version")


def hint_fault(storage: Storage, listing: LogListing) -> str | None:
    """Say what is wrong with the hint to the latest checkpoint; None when it leads to one."""
    try:
        hint = read_last_checkpoint(storage)
    except LogParseError as error:
        return error.message
    if hint is None:
        return "there is none" if listing.checkpoints else None
    for name in ("version", "size", "parts", "sizeInBytes", "numOfAddFiles"):
        value = hint.get(name)
        if value is not None and (type(value) is not int or value < 0):
            return f"{name} is {str(value)[:40]}"
    version, parts = hint["version"], hint.get("parts")
    named = [each for each in listing.checkpoints if each.version == version]
    if not named:
        return f"there is no checkpoint of version {version}"
    counts = {len(each.files) if each.kind == "multipart" else None for each in named}
    if parts not in counts:
        return f"the checkpoint of version {version} has not {parts or 1} parts"
    return None


def read_json(name: str, data: bytes, *, needs: str) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    try:
        found = load_json(data)
    except ValueError as error:
        raise LogParseError(f"{name} is no JSON: {error}", path=name) from error
    if not isinstance(found, dict) or not isinstance(found.get(needs), int):
        raise LogParseError(f"{name} does not tell its {needs}", path=name)
    return found


def _shown(gaps: list[tuple[int, int]]) -> str:
    first, last = gaps[0][0], gaps[-1][1]
    if first == last:
        return f"version {first} is"
    if len(gaps) == 1:
        return f"versions {first} to {last} are"
    count = sum(high - low + 1 for low, high in gaps)
    return f"{count} versions from {first} to {last} are"
