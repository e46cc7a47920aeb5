"""Create local files that survive a power loss: the content is flushed before the file is named.

All files of this package are created through `give_name`, which ensures this. A name survives a
power loss once `sync_folder` has flushed its folder. One flush is enough for several names.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TEMPORARY = ".deltasql-"
"""The prefix of the names of incomplete files."""
# Unnamed files need O_TMPFILE, and /proc to give them a name later.
_UNNAMED = getattr(os, "O_TMPFILE", 0) if os.path.isdir("/proc/self/fd") else 0
_KNOWS_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
# Some network file systems cannot flush folders, because the server does it.
_CANNOT_FLUSH_FOLDERS = (errno.EBADF, errno.EINVAL)
_BUFFER = 64 * 1024
# Folders that this process flushed together with their parents.
_durable_folders: set[str] = set()
_MOST_FOLDERS = 100_000


class _Descriptor:
    """A file descriptor with the interface that Arrow needs; `write` writes all bytes."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        write_all(self._file, data)
        return len(data)

    def tell(self) -> int:
        return os.lseek(self._file, 0, os.SEEK_CUR)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Keep the descriptor open, because the file has no name yet."""
        self.closed = True


def sink_to(file: int | None, path: str, *, small: bool) -> pa.NativeFile:
    """Return a buffered stream for Arrow's writers."""
    import pyarrow as pa  # lazy import: start-up time

    if small and file is not None:
        # For little data, opening the file a second time takes longer than writing through Python.
        return pa.BufferedOutputStream(pa.PythonFile(_Descriptor(file), "wb"), _BUFFER)
    # Arrow writes to its own file object without calling Python.
    return pa.output_stream(path, compression=None, buffer_size=_BUFFER)


def open_incomplete(folder: str) -> tuple[int | None, str]:
    """Open a file without a name; return its descriptor and path.

    If the file system does not support unnamed files, return None and the path of a temporary file.
    """
    try:
        file = _open_unnamed(folder)
    except FileNotFoundError:
        make_folders(folder)
        file = _open_unnamed(folder)
    if file is not None:
        return file, _path_to(file)
    make_folders(folder)
    return None, _hidden_in(folder)


def write_incomplete(file: int | None, path: str, data: bytes) -> None:
    """Write the content of a file from `open_incomplete`."""
    if file is not None:
        write_all(file, data)
        return
    with open(path, "wb", buffering=0) as hidden:
        write_all(hidden.fileno(), data)


def give_name(target: str, file: int | None, path: str, *, replace: bool) -> bool:
    """Flush a complete file, then give it its name, so that a named file is always complete.

    With `replace`, an existing file is replaced. Otherwise return False if one exists. The name
    survives a power loss only after `sync_folder`.
    """
    if file is not None:
        os.fsync(file)
        if replace:
            _link_over(file, target)
            return True
        return _link(file, target)
    flush_path(path)
    if replace:
        os.replace(path, target)
        return True
    try:
        os.link(path, target)
    except FileExistsError:
        return False
    return True


def drop_incomplete(file: int | None, path: str) -> None:
    """Close a file from `open_incomplete`; delete a temporary file if it still exists."""
    if file is not None:
        os.close(file)
    else:
        with suppress(OSError):
            os.unlink(path)


def make_folders(folder: str) -> None:
    """Create a folder and its missing parents, and flush their names to disk.

    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> make_folders(f"{place.name}/a/b"); os.path.isdir(f"{place.name}/a/b")
    True
    """
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    if above and above != folder:
        make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    _flush_names(above or ".")


def sync_folder(folder: str, root: str) -> None:
    """Flush the names in a folder, and the folders above it up to the parent of `root`.

    Another process may have created the folder and died before it flushed the parent folder. So
    every process flushes the folders above once.
    """
    _flush_names(folder)
    if folder in _durable_folders:
        return
    if len(_durable_folders) >= _MOST_FOLDERS:
        _durable_folders.clear()
    above = folder
    while len(above) >= max(2, len(root)):
        above = os.path.dirname(above)
        # This process may not have the permission to read the folders above the table.
        with suppress(PermissionError):
            _flush_names(above)
    _durable_folders.add(folder)


def flush_path(path: str) -> None:
    """Flush the content of a file to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _flush_names(folder: str) -> None:
    try:
        flush_path(folder)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH_FOLDERS:
            raise


def _open_unnamed(folder: str) -> int | None:
    """Open a file without a name; nothing remains of it if the process is killed.

    Return None if the file system does not support such files.
    """
    if not _UNNAMED:
        return None
    try:
        return os.open(folder, _UNNAMED | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno not in _KNOWS_NO_UNNAMED:
            raise
        return None


def _link(file: int, target: str) -> bool:
    """Give an unnamed file a name; return False if a file with this name exists."""
    try:
        # With src_dir_fd, Python calls linkat(2), which follows the link in /proc to the file.
        os.link(_path_to(file), target, src_dir_fd=file, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _link_over(file: int, target: str) -> None:
    """Give an unnamed file a name; replace an existing file."""
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


def _path_to(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _hidden_in(folder: str) -> str:
    return f"{folder}/{TEMPORARY}{uuid.uuid4().hex}.tmp"


def write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])
