"""Read commits and table states from a `_delta_log`, without the database.

A state is read from the latest checkpoint and the commits after it, or from commits alone. Files
stay in Arrow tables, so that the state of a table with a million files fits into memory.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import Commit, Table, parse_commit, parse_commits
from deltasql.exceptions import LogParseError, VersionNotFoundError
from deltasql.mirror.log.file_tables import logical_files, replayed_files, tombstone_table
from deltasql.mirror.log.listing import list_log
from deltasql.mirror.log.read_checkpoint import (
    CheckpointState,
    read_checkpoint,
    read_files,
    read_non_file_actions,
)
from deltasql.storage import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read_checkpoint import Kind
    from deltasql.model.actions import DomainMetadata, Metadata, Protocol, SetTransaction
    from deltasql.storage import FileInfo, Storage

    ReadFiles: TypeAlias = Callable[[Storage, str, Kind], Iterator[pa.Table]]
    _Facts: TypeAlias = tuple[
        int,
        int | None,
        Metadata,
        Protocol,
        dict[str, SetTransaction],
        dict[str, DomainMetadata],
    ]

_Found = TypeVar("_Found")
_PARALLEL_READS = 16
_BATCH_COMMITS = 64
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogCommit:
    """A parsed commit file."""

    version: int
    file: FileInfo
    data: bytes
    actions: Commit

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def adds(self) -> None:
        """Always None, because the added files are in `actions`."""


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a table at one version, as read from its log.

    `files` and `tombstones` have the schemas `file_tables.FILES` and `TOMBSTONES`.
    """

    version: int
    checkpoint_version: int | None
    metadata: Metadata
    protocol: Protocol
    txns: dict[str, SetTransaction]
    domains: dict[str, DomainMetadata]
    files: pa.Table
    tombstones: pa.Table


@dataclass(frozen=True, slots=True)
class StateStream:
    """A table state whose files and tombstones are iterators, which can be read only once."""

    version: int
    checkpoint_version: int | None
    metadata: Metadata
    protocol: Protocol
    txns: dict[str, SetTransaction]
    domains: dict[str, DomainMetadata]
    files: Iterator[pa.Table]
    tombstones: Iterator[pa.Table]


def read_state(
    storage: Storage,
    version: int | None = None,
    *,
    use_checkpoint: bool = True,
    listing: LogListing | None = None,
) -> LogState:
    """Read the state of a table at a version, by default the latest."""
    found = listing or list_log(storage)
    wanted = found.last_version if version is None else version
    states = read_states(
        storage, [wanted], use_checkpoint=use_checkpoint, listing=found, tombstones=True
    )
    return next(states)


def read_states(
    storage: Storage,
    versions: Iterable[int],
    *,
    use_checkpoint: bool = True,
    listing: LogListing | None = None,
    tombstones: bool = False,
) -> Iterator[LogState]:
    """Yield the states at several versions, oldest first, and read each commit only once.

    A checkpoint is used only for the first version. Later states are replayed from commits.
    """
    found = listing or list_log(storage)
    replay: _Replay | None = None
    for version in sorted(set(versions)):
        if not 0 <= version <= found.last_version:
            raise VersionNotFoundError(
                f"the log at {found.location} has no version {version}",
                version=version,
                latest=found.last_version,
            )
        if replay is None:
            replay = _start(storage, found, version, use_checkpoint=use_checkpoint)
        for commit in read_commits(storage, found, replay.next_version, version):
            replay.apply(commit)
        yield replay.state(tombstones=tombstones)


def stream_state(
    storage: Storage, version: int, *, listing: LogListing, read: ReadFiles = read_files
) -> StateStream:
    """Read the state of a table at a version, with its files as a stream."""
    checkpoint = listing.checkpoint_for(version)
    replay = _Replay(None if checkpoint is None else read_non_file_actions(storage, checkpoint))
    for commit in read_commits(storage, listing, replay.next_version, version):
        replay.apply(commit)
    return replay.stream(lambda name, kind: read(storage, name, kind))


def read_commits(
    storage: Storage, listing: LogListing, first: int, last: int
) -> Iterator[LogCommit]:
    """Yield the commits first..last; raise an error that names a missing or damaged commit."""
    files = listing.commits_from(first, last)
    contents = _contents(storage, [file.name for file in files])
    version, batch = first, _Batch()
    for file, data in zip(files, contents, strict=True):
        batch.add(file, data)
        if batch.is_full:
            yield from batch.parsed(version)
            version, batch = version + len(batch.files), _Batch()
    yield from batch.parsed(version)


class _Batch:
    """Commit files that are parsed together, which is faster for small files."""

    def __init__(self) -> None:
        self.files: list[FileInfo] = []
        self._contents: list[bytes] = []
        self._size = 0

    def add(self, file: FileInfo, data: bytes) -> None:
        self.files.append(file)
        self._contents.append(data)
        self._size += len(data)

    @property
    def is_full(self) -> bool:
        return len(self.files) >= _BATCH_COMMITS or self._size >= _BATCH_BYTES

    def parsed(self, version: int) -> Iterator[LogCommit]:
        names = [file.name for file in self.files]
        each = zip(range(version, version + len(names)), self.files, self._contents, strict=True)
        try:
            parsed = parse_commits(self._contents, version, names)
        except LogParseError:
            # Parse the files again one by one, to yield the commits before the damaged one.
            for number, file, data in each:
                actions = parse_commit(data, version=number, path=file.name)
                yield LogCommit(number, file, data, actions)
            raise
        for (number, file, data), actions in zip(each, parsed, strict=True):
            yield LogCommit(number, file, data, actions)


def contents_or_none(storage: Storage, names: list[str]) -> Iterator[bytes | None]:
    """Yield the content of files in order, with parallel reads; None for a missing file."""

    def read(name: str) -> bytes | None:
        try:
            return storage.read(name)
        except FileNotFoundError:
            return None

    return _read_in_parallel(storage, read, names)


def _contents(storage: Storage, names: list[str]) -> Iterator[bytes]:
    return _read_in_parallel(storage, storage.read, names)


def _read_in_parallel(
    storage: Storage, read: Callable[[str], _Found], names: list[str]
) -> Iterator[_Found]:
    """Yield what `read` returns for each file; object stores are read in parallel."""
    if parse_location(storage.location).is_local or len(names) == 1:
        yield from map(read, names)
        return
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        pending: deque[Future[_Found]] = deque()
        try:
            for name in names:
                pending.append(pool.submit(read, name))
                if len(pending) > _PARALLEL_READS:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start(storage: Storage, listing: LogListing, version: int, *, use_checkpoint: bool) -> _Replay:
    checkpoint = listing.checkpoint_for(version)
    if not use_checkpoint:
        # If older commits were deleted, the replay must start from a checkpoint.
        first = listing.first_version
        is_complete = first == 0 and 0 in listing.commits
        checkpoint = None if is_complete else listing.checkpoint_for(min(first, version))
    return _Replay(None if checkpoint is None else read_checkpoint(storage, checkpoint))


class _Replay:
    """Replays commits, starting from a checkpoint if there is one."""

    def __init__(self, base: CheckpointState | None) -> None:
        self._base, self._table = base, Table()
        self._changed_domains: set[str] = set()
        self._removed: list[pa.Table] = []
        self.next_version = 0 if base is None else base.version + 1

    def apply(self, commit: LogCommit) -> None:
        actions = commit.actions
        self._table.apply(actions, commit.version, commit.file.name)
        if self._base is not None:
            self._changed_domains.update(each.domain for each in actions.domain_metadata)
            self._removed.append(tombstone_table(actions.removes))
        self.next_version = commit.version + 1

    def state(self, *, tombstones: bool) -> LogState:
        base = self._base
        files = replayed_files(self._table)
        left = tombstone_table(self._table.tombstones if tombstones else ())
        if base is not None:
            changed = self._changed_files(files)
            files = pa.concat_tables([_without(base.files, changed), files])
            if tombstones:
                left = pa.concat_tables([_without(base.tombstones, changed), left])
        return LogState(*self._facts(), files, left)

    def stream(self, read: Callable[[str, Kind], Iterator[pa.Table]]) -> StateStream:
        """Return the state as a stream; `read` reads the checkpoint's files when needed."""
        base = self._base

        def pieces(kind: Kind) -> Iterator[pa.Table]:
            replayed = replayed_files(self._table)
            if base is not None:
                changed = self._changed_files(replayed)
                yield _without(base.files if kind == "add" else base.tombstones, changed)
                for name in base.parts:
                    for piece in read(name, kind):
                        yield _without(piece, changed)
            yield replayed if kind == "add" else tombstone_table(self._table.tombstones)

        return StateStream(*self._facts(), pieces("add"), pieces("remove"))

    def _facts(self) -> _Facts:
        table, base, version = self._table, self._base, self.next_version - 1
        txns = {txn.app_id: txn for txn in table.txns}
        domains = dict(table.domain_metadata)
        metadata, protocol = table.metadata, table.protocol
        if base is not None:
            txns = {**base.txns, **txns}
            kept = {k: v for k, v in base.domains.items() if k not in self._changed_domains}
            domains = {**kept, **domains}
            metadata, protocol = metadata or base.metadata, protocol or base.protocol
        return (
            version,
            None if base is None else base.version,
            _required(metadata, "metaData", version),
            _required(protocol, "protocol", version),
            txns,
            domains,
        )

    def _changed_files(self, files: pa.Table) -> pa.ChunkedArray | None:
        """Return the logical files that commits after the checkpoint add or remove."""
        others = [each for each in (files, *self._removed) if each.num_rows]
        chunks = [chunk for each in others for chunk in logical_files(each).chunks]
        return pa.chunked_array(chunks, pa.string()) if chunks else None


def _without(files: pa.Table, changed: pa.ChunkedArray | None) -> pa.Table:
    """Return the files of a checkpoint that later commits neither add again nor remove."""
    if changed is None or not files.num_rows:
        return files
    return files.filter(pc.invert(pc.is_in(logical_files(files), changed)))


def _required(found: _Found | None, kind: str, version: int) -> _Found:
    if found is None:
        raise LogParseError(f"no commit up to version {version} has a {kind} action")
    return found
