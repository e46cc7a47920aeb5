"""Files on a local disk, by calls of the operating system.

Only data files are flushed to the platter: the log is written again from SQL when it is lost
with the power. A log that is left to others is flushed first.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from deltasql.exceptions import TxnLogStorageError
from deltasql.storage.base import FileInfo, Sink, Storage, checked, folder_of, stream_from
from deltasql.storage.location import Location, data_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

# A file without a name needs this flag, and /proc to give it one.
_UNNAMED = getattr(os, "O_TMPFILE", 0) if os.path.isdir("/proc/self/fd") else 0
_KNOWS_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_TEMPORARY = ".deltasql-"
_LOG = "_delta_log"
_BUFFER = 64 * 1024
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

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = False) -> bool:
        """Create a file whole; False when the name is taken, which changes nothing.

        One that is `durable` never appears in part, and survives a loss of power from then on.
        """
        target = self._path(name, "put_if_absent")
        try:
            return _link_new(target, data, durable=durable)
        except FileNotFoundError:
            pass  # the folder is missing
        except OSError as error:
            raise self._fault("put_if_absent", name, error) from error
        with self._told("put_if_absent", name):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            return _link_new(target, data, durable=durable)

    def flush(self, names: Iterable[str]) -> None:
        """Let files that are there survive a loss of power; those that are gone are fine."""
        folders: set[str] = set()
        for name in names:
            path = self._path(name, "flush")
            with self._told("flush", name), suppress(FileNotFoundError):
                _flush_path(path)
                # The folders may be new as well.
                while len(path) > max(1, len(self._root)):
                    path = os.path.dirname(path)
                    folders.add(path)
        for folder in sorted(folders):
            with self._told("flush", folder):
                _flush_path(folder)

    def put(self, name: str, data: bytes) -> None:
        """Write a file whole, in the place of what has the name."""
        with self._told("put", name), self._replacing(name, "put") as temporary:
            _write_new(temporary, data)

    @contextmanager
    def writer(self, name: str, *, durable: bool = False) -> Iterator[Sink]:
        """Stream a file; it appears whole when the block ends, and never if the block fails.

        One that is `durable` survives a loss of power from then on.
        """
        with self._replacing(name, "writer", durable=durable) as temporary:
            with self._told("writer", name):
                # Arrow writes to its own kind of file without asking Python, small parts together.
                sink = pa.output_stream(temporary, compression=None, buffer_size=_BUFFER)
            # The block reads as well: only what the disk says to a write is told as ours.
            with self._told("writer", name, only=_DISK_REFUSES), sink:
                yield sink

    def read(self, name: str) -> bytes:
        """Return a file's content; FileNotFoundError when it is not there."""
        with self._told("read", name), open(self._path(name, "read"), "rb") as file:
            return file.read()

    def open_input(self, name: str) -> BinaryIO:
        """Open a file to read any part of it."""
        with self._told("open_input", name):
            return open(self._path(name, "open_input"), "rb")

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[FileInfo]:
        """List the files below a folder and its folders, sorted by name."""
        folder = folder_of(self.location, prefix)
        with self._told("list", prefix):
            start = f"{folder}/" if folder else ""
            seen = {os.path.realpath(f"{self._root}/{start}")}
            yield from _walk(self._root, start, start_after or "", seen)

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the folders right below a folder, each with a slash at its end, sorted.

        Links are left out: they may lead in a ring.
        """
        folder = folder_of(self.location, prefix)
        below = f"{folder}/" if folder else ""
        with (
            self._told("folders", prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._root}/{below}") as entries,
        ):
            return sorted(
                f"{below}{each.name}/" for each in entries if each.is_dir(follow_symlinks=False)
            )
        return []

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        return os.path.isfile(self._path(name, "exists"))

    def size(self, name: str) -> int:
        """Return how many bytes a file has; FileNotFoundError when it is not there."""
        path = self._path(name, "size")
        with self._told("size", name):
            if not os.path.isfile(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return os.path.getsize(path)

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is fine, and so is a folder, which is none."""
        absent = suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with self._told("delete", name), absent:
            os.unlink(self._path(name, "delete"))

    def delete_many(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are fine."""
        for name in names:
            self.delete(name)

    def copy_from(self, source: Storage, name: str) -> None:
        """Copy a file of another storage to the same name here, whole or not at all."""
        if not isinstance(source, LocalStorage):
            stream_from(source, name, self, name)
            return
        origin = source._path(name, "copy_from")
        with self._told("copy_from", name), self._replacing(name, "copy_from") as temporary:
            shutil.copyfile(origin, temporary)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in the place of what has it."""
        origin, target = self._path(name, "rename"), self._path(to, "rename")
        with self._told("rename", name):
            try:
                os.replace(origin, target)
            except FileNotFoundError:
                if not os.path.exists(origin):
                    raise
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(origin, target)

    def data_name(self, path: str) -> str:
        """Return the name of the file that an action's `path` means."""
        return data_name(self._place, path)

    def _path(self, name: str, operation: str) -> str:
        return f"{self._root}/{checked(self.location, name, operation)}"

    @contextmanager
    def _replacing(self, name: str, operation: str, *, durable: bool = False) -> Iterator[str]:
        """Lend a path; what the block writes there takes the target's place."""
        target = self._path(name, operation)
        with self._told(operation, name):
            file, path = _open_aside(os.path.dirname(target))
        try:
            yield path
            with self._told(operation, name):
                if file is None:
                    os.replace(path, target)
                else:
                    _link_over(file, target)
                if durable:
                    _flush(target, file, self._root)
        except BaseException:
            if file is None:
                with suppress(OSError):
                    os.unlink(path)
            raise
        finally:
            if file is not None:
                os.close(file)

    @contextmanager
    def _told(self, operation: str, name: str, *, only: Set[int] = frozenset()) -> Iterator[None]:
        """Tell what was tried when the system says no."""
        try:
            yield
        except (FileNotFoundError, TxnLogStorageError):
            raise
        except OSError as error:
            if only and error.errno not in only:
                raise
            raise self._fault(operation, name, error) from error

    def _fault(self, operation: str, name: str, error: OSError) -> TxnLogStorageError:
        return TxnLogStorageError(
            f"{operation} of {name!r} at {self.location} failed: {error.strerror}",
            location=self.location,
            name=name,
            operation=operation,
            help="Check the rights on the folder, the space on the disk, and that it is "
            "mounted; a disk without hard links cannot hold a log.",
        )


def _link_new(target: str, data: bytes, *, durable: bool = False) -> bool:
    """Link a finished file to its name: that fails when the name exists, and is never half done."""
    is_new = _link_whole(target, data, durable=durable)
    if is_new and durable:
        _flush_path(target)
        _flush_path(os.path.dirname(target))
    return is_new


def _link_whole(target: str, data: bytes, *, durable: bool) -> bool:
    folder = os.path.dirname(target)
    file = _open_unnamed(folder)
    if file is not None:
        try:
            _write_all(file, data)
            if durable:
                os.fsync(file)  # before the name is there: it must not outlive the content
            return _link(file, target)
        finally:
            os.close(file)
    temporary = _hidden_in(folder)
    try:
        _write_new(temporary, data)
        if durable:
            _flush_path(temporary)
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return True


def _open_unnamed(folder: str) -> int | None:
    """Open a file without a name, of which nothing is left when the process is killed.

    None where the disk knows no such files.
    """
    if not _UNNAMED:
        return None
    try:
        return os.open(folder, _UNNAMED | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno not in _KNOWS_NO_UNNAMED:
            raise
        return None


def _open_aside(folder: str) -> tuple[int | None, str]:
    """Return an unnamed file and a path to it; or no file and the path of a hidden one."""
    try:
        file = _open_unnamed(folder)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        file = _open_unnamed(folder)
    if file is not None:
        return file, _path_to(file)
    os.makedirs(folder, exist_ok=True)
    return None, _hidden_in(folder)


def _link(file: int, target: str) -> bool:
    """Give an unnamed file a name; False when the name is taken."""
    try:
        # With a folder given, Python uses linkat(2), which follows the link in /proc to the file.
        os.link(_path_to(file), target, src_dir_fd=file, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _link_over(file: int, target: str) -> None:
    """Give an unnamed file a name, in the place of what has it."""
    if _link(file, target):
        return
    temporary = _hidden_in(os.path.dirname(target))
    try:
        _link(file, temporary)
        os.replace(temporary, target)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _flush(path: str, file: int | None, root: str) -> None:
    """Wait until a file and its name are on the disk."""
    if file is not None:
        # Disks that know unnamed files keep a new name with the file: one wait is enough.
        os.fsync(file)
        return
    places = [path]
    while len(places[-1]) > max(1, len(root)):  # folders of partitions may be new
        places.append(os.path.dirname(places[-1]))
    for each in places:
        opened = os.open(each, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _flush_path(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _path_to(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _hidden_in(folder: str) -> str:
    return f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}.tmp"


def _write_new(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        _write_all(file.fileno(), data)


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])


def _walk(root: str, folder: str, after: str, seen: set[str]) -> Iterator[FileInfo]:
    """Yield the files below a folder (empty, or ending in a slash) whose names come after one.

    `seen` are the real folders that were entered so far. A link to one, or into it, or to what
    holds it, shows nothing new: links in a ring would never end. Of these a log is told by name.
    """
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            # As in an object store, a folder's slash takes part in the order.
            found = sorted((f"{folder}{e.name}{'/' if e.is_dir() else ''}", e) for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        is_folder, is_temporary = name.endswith("/"), entry.name.startswith(_TEMPORARY)
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
    """Tell whether a link leads to a folder of its own, which is seen from now on."""
    real = os.path.realpath(link.path).rstrip("/") + "/"
    for each in seen:
        known = each.rstrip("/") + "/"
        if real.startswith(known) or known.startswith(real):
            return False
    seen.add(real)
    return True
