"""What a storage can do, and what all kinds of it share."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from deltasql.exceptions import RefusedFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

_CHUNK = 8 * 1024 * 1024
# A part that is empty, "." or "..", or a character that ends a name for the system.
_STRAY = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as a listing tells it; the name is relative to the root and parted by `/`."""

    name: str
    size: int
    modified_ms: int


class Sink(Protocol):
    """A file that is being written; Arrow's writers take it."""

    def write(self, data: bytes, /) -> int:
        """Append bytes."""

    def tell(self) -> int:
        """Return how many bytes were written."""


# What is read whole is a file of a log, or a deletion vector: none comes near this size.
LONGEST_READ = 2 << 30


def check_length(size: int, name: str, location: str) -> None:
    """Refuse to read a file whole that would not fit into memory."""
    if size > LONGEST_READ:
        raise RefusedFileError(
            f"{name!r} at {location} has {size:,} bytes: more than {LONGEST_READ:,} are not read",
            location=location,
            name=name,
            operation="read",
            help="No file of a Delta log is that large: look at what it is, and move it away.",
        )


@runtime_checkable
class Storage(Protocol):
    """The files below one location.

    The content of a file is on the disk before its name appears, so a file that is there is never
    empty or short, not even after a power loss. The name survives a power loss when the call
    returns; with `flush_folder=False` only after `flush_folder()`, which many files can share.
    """

    @property
    def location(self) -> str:
        """The location, without secrets."""

    def put_if_absent(self, name: str, data: bytes, *, flush_folder: bool = True) -> bool:
        """Create a file whole; False when the name is taken, which changes nothing.

        When an answer of an object store is lost, the file found may be our own: compare.
        """

    def put(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Write a file whole, in the place of what has the name."""

    def flush_folder(self, name: str) -> None:
        """Let the names of files that are in a folder survive a power loss."""

    def make_root(self) -> None:
        """Create the folder of the location; it and new ones above it survive a power loss."""

    def flush(self, names: Iterable[str]) -> None:
        """Let files that others wrote survive a power loss; those that are gone are fine."""

    def writer(
        self, name: str, *, small: bool = False, flush_folder: bool = True
    ) -> AbstractContextManager[Sink]:
        """Stream a file; it appears whole when the block ends, and never if the block fails.

        `small` is what the caller expects of it, not a promise.
        """

    def read(self, name: str) -> bytes:
        """Return a file's content, up to LONGEST_READ; FileNotFoundError when it is not there."""

    def open_input(self, name: str) -> BinaryIO:
        """Open a file to read any part of it; only what is asked for is fetched."""

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[FileInfo]:
        """List the files below a folder and its folders, sorted by name."""

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the folders right below a folder, each with a slash at its end, sorted."""

    @property
    def starts_anywhere(self) -> bool:
        """Whether a listing that starts after a name costs nothing for those before it."""

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""

    def size(self, name: str) -> int:
        """Return how many bytes a file has; FileNotFoundError when it is not there."""

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Delete files, with few requests; those that are gone already are fine."""

    def copy_from(self, source: Storage, name: str, *, flush_folder: bool = True) -> None:
        """Copy a file of another storage to the same name here, whole or not at all."""

    def rename(self, name: str, to: str, *, flush_folder: bool = True) -> None:
        """Give a file another name, in the place of what has it."""

    def data_name(self, path: str) -> str:
        """Return the name of the file that an action's `path` means."""


def stream_from(
    source: Storage, name: str, target: Storage, to: str, *, flush_folder: bool = True
) -> None:
    """Copy a file through this process, in pieces."""
    with (
        source.open_input(name) as reader,
        target.writer(to, flush_folder=flush_folder) as sink,
    ):
        shutil.copyfileobj(reader, sink, _CHUNK)


def is_inside(name: str) -> bool:
    """Tell whether a name stays below the root, and is written in the one way there is.

    >>> [is_inside(name) for name in ("a/b c", "../b", "/etc/x", "a//b", "a/./b", "")]
    [True, False, False, False, False, False]
    """
    return _STRAY.search(name) is None


def checked(location: str, name: str, operation: str) -> str:
    """Return the name, or refuse one that leaves the root."""
    if not is_inside(name):
        raise RefusedFileError(
            f"{name!r} names no file below {location}",
            location=location,
            name=name,
            operation=operation,
            help="Name a file relative to the root, without empty, '.' or '..' parts.",
        )
    return name


def folder_of(location: str, prefix: str) -> str:
    """Return a listing's folder, without a slash at its end; the root is empty."""
    folder = prefix.removesuffix("/")
    return checked(location, folder, "list") if folder else ""
