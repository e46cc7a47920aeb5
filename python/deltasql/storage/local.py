"""Files on a local disk.

A file is flushed to disk before it gets its name. Its folder is flushed before the call returns.
With `flush_folder=False`, the caller flushes the folder later for several files, with
`flush_folder()`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from deltasql.exceptions import RefusedFileError, TxnLogStorageError
from deltasql.storage.base import (
    FileInfo,
    Sink,
    Storage,
    check_length,
    stream_from,
)
from deltasql.storage.local_files import (
    TEMPORARY,
    drop_incomplete,
    flush_path,
    give_name,
    make_folders,
    open_incomplete,
    sink_to,
    sync_folder,
    write_incomplete,
)
from deltasql.storage.location import Location, checked, data_name, folder_of
from deltasql.storage.platform import READ_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pyarrow as pa

_LOG = "_delta_log"
_DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}


class LocalStorage:
    """The files below one folder."""

    starts_anywhere = True

    def __init__(self, place: Location) -> None:
        self._place = place
        self._root = place.path.rstrip("/")

    def __repr__(self) -> str:
        return f"LocalStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The location, without secrets."""
        return self._place.text

    def put_if_absent(self, name: str, data: bytes, *, flush_folder: bool = True) -> bool:
        """Create a file atomically; return False and change nothing if it exists."""
        return self._put("put_if_absent", name, data, replace=False, flush_folder=flush_folder)

    def put(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Create or replace a file atomically."""
        self._put("put", name, data, replace=True, flush_folder=flush_folder)

    def flush_folder(self, name: str) -> None:
        """Flush the names in a folder to disk, so that they survive a power loss."""
        folder = folder_of(self.location, name)
        with self._translated("flush_folder", name):
            sync_folder(f"{self._root}/{folder}" if folder else self._root, self._root)

    def make_root(self) -> None:
        """Create the folder of the location and its parents, and flush their names to disk."""
        with self._translated("make_root", ""):
            make_folders(self._root)

    def flush(self, names: Iterable[str]) -> None:
        """Flush files of another program, and their names, to disk; ignore missing files."""
        folders: set[str] = set()
        for name in names:
            path = self._path(name, "flush")
            with self._translated("flush", name), suppress(FileNotFoundError):
                flush_path(path)
                folders.add(os.path.dirname(path))
        for folder in sorted(folders):
            with self._translated("flush", folder):
                sync_folder(folder, self._root)

    def writer(
        self, name: str, *, small: bool = False, flush_folder: bool = True
    ) -> AbstractContextManager[Sink]:
        """Write a file as a stream; it gets its name when the block ends without an error.

        `small` says that little data is expected.
        """
        return _Writer(self, name, small=small, flush_folder=flush_folder)

    def read(self, name: str) -> bytes:
        """Return the content of a file of at most LONGEST_READ bytes."""
        with self._translated("read", name), self._open(name, "read") as file:
            check_length(os.fstat(file.fileno()).st_size, name, self.location)
            return file.read()

    def open_input(self, name: str) -> BinaryIO:
        """Open a file for random access."""
        with self._translated("open_input", name):
            return self._open(name, "open_input")

    def _open(self, name: str, operation: str) -> BinaryIO:
        """Open a regular file; raise for others, because reading a pipe or device could block."""
        file = os.open(self._path(name, operation), READ_FLAGS)
        mode = os.fstat(file).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(file, "rb")
        os.close(file)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise RefusedFileError(
            f"{name!r} at {self.location} is a pipe or a device, not a file",
            location=self.location,
            name=name,
            operation=operation,
            help="Move it away, or replace it with the file that should have this name.",
        )

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[FileInfo]:
        """List all files below a folder, recursively, sorted by name."""
        folder = folder_of(self.location, prefix)
        with self._translated("list", prefix):
            start = f"{folder}/" if folder else ""
            seen = {os.path.realpath(f"{self._root}/{start}")}
            yield from _walk(self._root, start, start_after or "", seen)

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the direct subfolders of a folder, sorted, each with a slash at the end.

        Symbolic links are omitted, because they can form a cycle.
        """
        folder = folder_of(self.location, prefix)
        below = f"{folder}/" if folder else ""
        with (
            self._translated("folders", prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._root}/{below}") as entries,
        ):
            return sorted(
                f"{below}{each.name}/" for each in entries if each.is_dir(follow_symlinks=False)
            )
        return []

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return os.path.isfile(self._path(name, "exists"))

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        path = self._path(name, "size")
        with self._translated("size", name):
            if not os.path.isfile(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return os.path.getsize(path)

    def delete(self, name: str) -> None:
        """Delete a file if it exists; a folder is not deleted."""
        absent = suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with self._translated("delete", name), absent:
            os.unlink(self._path(name, "delete"))

    def delete_many(self, names: Iterable[str]) -> None:
        """Delete files; ignore missing files."""
        for name in names:
            self.delete(name)

    def copy_from(
        self, source: Storage, name: str, *, to: str | None = None, flush_folder: bool = True
    ) -> None:
        """Copy a file from another storage, by default under the same name."""
        if not isinstance(source, LocalStorage):
            stream_from(source, name, self, to or name, flush_folder=flush_folder)
            return
        origin = source._path(name, "copy_from")
        target = self._path(to or name, "copy_from")
        with self._translated("copy_from", name):
            file, path = open_incomplete(os.path.dirname(target))
            try:
                shutil.copyfile(origin, path)
                self._name(target, file, path, replace=True, flushes=flush_folder)
            finally:
                drop_incomplete(file, path)

    def rename(self, name: str, to: str, *, flush_folder: bool = True) -> None:
        """Rename a file; an existing file with the new name is replaced."""
        origin, target = self._path(name, "rename"), self._path(to, "rename")
        with self._translated("rename", name):
            try:
                os.replace(origin, target)
            except FileNotFoundError:
                if not os.path.exists(origin):
                    raise
                make_folders(os.path.dirname(target))
                os.replace(origin, target)
        if flush_folder:
            for each in dict.fromkeys((to, name)):
                self.flush_folder(os.path.dirname(each))

    def data_name(self, path: str) -> str:
        """Return the name of the file to which the `path` of an action refers."""
        return data_name(self._place, path)

    def _path(self, name: str, operation: str) -> str:
        return f"{self._root}/{checked(self.location, name, operation)}"

    def _put(
        self, operation: str, name: str, data: bytes, *, replace: bool, flush_folder: bool
    ) -> bool:
        target = self._path(name, operation)
        try:
            file, path = open_incomplete(os.path.dirname(target))
            try:
                write_incomplete(file, path, data)
                return self._name(target, file, path, replace=replace, flushes=flush_folder)
            finally:
                drop_incomplete(file, path)
        except OSError as error:
            raise self._fault(operation, name, error) from error

    def _name(
        self, target: str, file: int | None, path: str, *, replace: bool, flushes: bool
    ) -> bool:
        """Give a complete file its name; with `flushes`, flush its folder."""
        if not give_name(target, file, path, replace=replace):
            return False
        if flushes:
            sync_folder(os.path.dirname(target), self._root)
        return True

    @contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Convert an OSError to TxnLogStorageError; FileNotFoundError is raised unchanged."""
        try:
            yield
        except (FileNotFoundError, TxnLogStorageError):
            raise
        except OSError as error:
            raise self._fault(operation, name, error) from error

    def _fault(self, operation: str, name: str, error: OSError) -> TxnLogStorageError:
        return TxnLogStorageError(
            f"{operation} of {name!r} at {self.location} failed: {error.strerror}",
            location=self.location,
            name=name,
            operation=operation,
            help="Check the permissions of the folder and the free disk space, and that the disk "
            "is mounted. A log needs a file system that supports hard links.",
        )


class _Writer:
    """The context manager of `writer`. It is a class, because a generator is slower."""

    __slots__ = ("_file", "_flushes", "_name", "_path", "_sink", "_small", "_storage", "_target")

    def __init__(
        self, storage: LocalStorage, name: str, *, small: bool, flush_folder: bool
    ) -> None:
        self._storage, self._name = storage, name
        self._small, self._flushes = small, flush_folder

    def __enter__(self) -> pa.NativeFile:
        storage = self._storage
        self._target = storage._path(self._name, "writer")
        try:
            self._file, self._path = open_incomplete(os.path.dirname(self._target))
            try:
                self._sink = sink_to(self._file, self._path, small=self._small)
            except BaseException:
                drop_incomplete(self._file, self._path)
                raise
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage._fault("writer", self._name, error) from error
        return self._sink

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._close(error)
            if kind is None:
                with self._storage._translated("writer", self._name):
                    self._storage._name(
                        self._target, self._file, self._path, replace=True, flushes=self._flushes
                    )
        finally:
            drop_incomplete(self._file, self._path)

    def _close(self, failure: BaseException | None) -> None:
        """Close the file; raise TxnLogStorageError if the disk failed now or during the block."""
        raised = failure
        try:
            self._sink.close()
        except OSError as error:
            raised = error
            if error.errno not in _DISK_REFUSES:
                raise
        if isinstance(raised, TxnLogStorageError) or not isinstance(raised, OSError):
            return
        # Other errors are raised unchanged, because they may come from files that the block reads.
        if raised.errno in _DISK_REFUSES:
            raise self._storage._fault("writer", self._name, raised) from raised


def _walk(root: str, folder: str, after: str, seen: set[str]) -> Iterator[FileInfo]:
    """Yield the files below a folder with names after `after`, in the order of object stores.

    `folder` is empty or ends with a slash. `seen` has the real paths of the folders read so far.
    Links can form a cycle, so a symbolic link to one of these folders, to a folder inside it or to
    a folder above it is not followed. Such a link is yielded only if its name is `_delta_log`.
    """
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            # As in an object store, the slash at the end of a folder's name is part of the sort
            # key.
            found = sorted((f"{folder}{e.name}{'/' if e.is_dir() else ''}", e) for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        is_folder, is_temporary = name.endswith("/"), entry.name.startswith(TEMPORARY)
        if is_folder and not (name > after or after.startswith(name)):
            continue
        if is_folder and (not entry.is_symlink() or _leads_on(entry, seen)):
            yield from _walk(root, name, after, seen)
        elif entry.name == _LOG if is_folder else name > after and not is_temporary:
            try:
                facts = entry.stat(follow_symlinks=not is_folder)
            except FileNotFoundError:  # deleted since the folder was read
                continue
            yield FileInfo(name.rstrip("/"), facts.st_size, facts.st_mtime_ns // 1_000_000)


def _leads_on(link: os.DirEntry[str], seen: set[str]) -> bool:
    """Return whether a link leads to a folder that was not read yet; if so, add it to `seen`."""
    real = os.path.realpath(link.path).rstrip("/") + "/"
    for each in seen:
        known = each.rstrip("/") + "/"
        if real.startswith(known) or known.startswith(real):
            return False
    seen.add(real)
    return True
