"""Local files that are whole before they have their name, and wait for the disk where they must."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress

import pyarrow as pa

from deltasql.storage.local_walk import TEMPORARY

# A file without a name needs this flag, and /proc to give it one.
_UNNAMED = getattr(os, "O_TMPFILE", 0) if os.path.isdir("/proc/self/fd") else 0
_KNOWS_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_BUFFER = 64 * 1024


class _Descriptor:
    """A file that is open, as Arrow calls it: what is written is written whole."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        write_all(self._file, data)
        return len(data)

    def tell(self) -> int:
        return os.lseek(self._file, 0, os.SEEK_CUR)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Leave it open: it has no name yet."""
        self.closed = True


def sink_to(file: int | None, path: str, *, small: bool) -> pa.NativeFile:
    """Return what Arrow's writers take; small parts are written together."""
    if small and file is not None:
        # To open the file once more costs more than to write what is little through Python.
        return pa.BufferedOutputStream(pa.PythonFile(_Descriptor(file), "wb"), _BUFFER)
    # Arrow writes to its own kind of file without asking Python.
    return pa.output_stream(path, compression=None, buffer_size=_BUFFER)


def link_new(target: str, data: bytes, *, durable: bool = False) -> bool:
    """Link a finished file to its name: that fails when the name exists, and is never half done."""
    is_new = _link_whole(target, data, durable=durable)
    if is_new and durable:
        flush_path(target)
        flush_path(os.path.dirname(target))
    return is_new


def _link_whole(target: str, data: bytes, *, durable: bool) -> bool:
    folder = os.path.dirname(target)
    file = open_unnamed(folder)
    if file is not None:
        try:
            write_all(file, data)
            if durable:
                os.fsync(file)  # before the name is there: it must not outlive the content
            return _link(file, target)
        finally:
            os.close(file)
    temporary = _hidden_in(folder)
    try:
        write_new(temporary, data)
        if durable:
            flush_path(temporary)
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return True


def open_unnamed(folder: str) -> int | None:
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


def open_aside(folder: str) -> tuple[int | None, str]:
    """Return an unnamed file and a path to it; or no file and the path of a hidden one."""
    try:
        file = open_unnamed(folder)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        file = open_unnamed(folder)
    if file is not None:
        return file, _path_to(file)
    os.makedirs(folder, exist_ok=True)
    return None, _hidden_in(folder)


def take_place(target: str, file: int | None, path: str) -> None:
    """Let what was written aside take the place of a name."""
    if file is None:
        os.replace(path, target)
    else:
        _link_over(file, target)


def drop_aside(file: int | None, path: str | None = None) -> None:
    """Let go of what was written aside; a path is one that came to nothing."""
    if file is not None:
        os.close(file)
    elif path is not None:
        with suppress(OSError):
            os.unlink(path)


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


def flush_named(path: str, file: int | None, root: str) -> None:
    """Wait until a file and its name are on the disk."""
    if file is not None:
        # Disks that know unnamed files keep a new name with the file: one wait is enough.
        os.fsync(file)
        return
    places = [path]
    while len(places[-1]) > max(1, len(root)):  # folders of partitions may be new
        places.append(os.path.dirname(places[-1]))
    for each in places:
        flush_path(each)


def flush_path(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _path_to(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _hidden_in(folder: str) -> str:
    return f"{folder}/{TEMPORARY}{uuid.uuid4().hex}.tmp"


def write_new(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        write_all(file.fileno(), data)


def write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])
