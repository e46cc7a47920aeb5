"""The interface of a storage, and the code that all implementations share."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from deltasql.exceptions import RefusedFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file in a listing; its name is relative to the root, with `/` as separator."""

    name: str
    size: int
    modified_ms: int


class Sink(Protocol):
    """A file that is being written; Arrow's writers accept it."""

    def write(self, data: bytes, /) -> int:
        """Append bytes."""

    def tell(self) -> int:
        """Return the number of bytes written."""


# Only log files and deletion vectors are read as a whole, and they are much smaller than this.
LONGEST_READ = 2 << 30


def check_length(size: int, name: str, location: str) -> None:
    """Raise RefusedFileError if a file is too large to be read into memory."""
    if size > LONGEST_READ:
        raise RefusedFileError(
            f"{name!r} at {location} has {size:,} bytes, but at most {LONGEST_READ:,} are read",
            location=location,
            name=name,
            operation="read",
            help="No file of a Delta log is that large. Find out what it is, and move it away.",
        )


@runtime_checkable
class Storage(Protocol):
    """The files below one location.

    The content of a file is flushed to disk before the file gets its name, so an existing file is
    complete even after a power loss. The name is flushed when the call returns. With
    `flush_folder=False`, it is flushed only by a later call of `flush_folder()`, which is faster
    for several files.
    """

    @property
    def location(self) -> str:
        """The location, without secrets."""

    def put_if_absent(self, name: str, data: bytes, *, flush_folder: bool = True) -> bool:
        """Create a file atomically; return False and change nothing if it exists.

        If the response of an object store was lost, False may be returned although this call
        created the file. To find out, compare the content.
        """

    def put(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Create or replace a file atomically."""

    def flush_folder(self, name: str) -> None:
        """Flush the names in a folder to disk, so that they survive a power loss."""

    def make_root(self) -> None:
        """Create the folder of the location and its parents, and flush their names to disk."""

    def flush(self, names: Iterable[str]) -> None:
        """Flush files of another program, and their names, to disk; ignore missing files."""

    def writer(
        self, name: str, *, small: bool = False, flush_folder: bool = True
    ) -> AbstractContextManager[Sink]:
        """Write a file as a stream; it gets its name when the block ends without an error.

        `small` says that little data is expected.
        """

    def read(self, name: str) -> bytes:
        """Return the content of a file of at most LONGEST_READ bytes.

        Raise FileNotFoundError if the file is missing, RefusedFileError if it is larger.
        """

    def open_input(self, name: str) -> BinaryIO:
        """Open a file for random access; only the requested ranges are read."""

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[FileInfo]:
        """List all files below a folder, recursively, sorted by name."""

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the direct subfolders of a folder, sorted, each with a slash at the end."""

    @property
    def starts_anywhere(self) -> bool:
        """Whether a listing with `start_after` skips earlier names without reading them."""

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; raise FileNotFoundError if it is missing."""

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Delete files with few requests; ignore missing files."""

    def copy_from(
        self, source: Storage, name: str, *, to: str | None = None, flush_folder: bool = True
    ) -> None:
        """Copy a file from another storage; readers never see a part of it.

        `to` is the name of the copy, by default the same name.
        """

    def rename(self, name: str, to: str, *, flush_folder: bool = True) -> None:
        """Rename a file; an existing file with the new name is replaced."""

    def data_name(self, path: str) -> str:
        """Return the name of the file to which the `path` of an action refers."""


def stream_from(
    source: Storage, name: str, target: Storage, to: str, *, flush_folder: bool = True
) -> None:
    """Copy a file through this process, in chunks."""
    with (
        source.open_input(name) as reader,
        target.writer(to, flush_folder=flush_folder) as sink,
    ):
        shutil.copyfileobj(reader, sink, _CHUNK)
