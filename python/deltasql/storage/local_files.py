"""Local files that survive a power loss: content is on the disk before the name appears.

Every file that this package creates goes through `give_name`, which is the whole rule. A name
survives a power loss once its folder was flushed (`sync_folder`); several names in one folder may
share that flush.
"""

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
# Some network file systems do not flush folders: their servers do so by themselves.
_CANNOT_FLUSH_FOLDERS = (errno.EBADF, errno.EINVAL)
_BUFFER = 64 * 1024
# Folders that this process knows to survive a power loss, with those above them.
_durable_folders: set[str] = set()
_MOST_FOLDERS = 100_000


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


def open_aside(folder: str) -> tuple[int | None, str]:
    """Return an unnamed file and a path to it; or no file and the path of a hidden one."""
    try:
        file = _open_unnamed(folder)
    except FileNotFoundError:
        make_folders(folder)
        file = _open_unnamed(folder)
    if file is not None:
        return file, _path_to(file)
    make_folders(folder)
    return None, _hidden_in(folder)


def write_aside(file: int | None, path: str, data: bytes) -> None:
    """Write the content of a file that `open_aside` opened."""
    if file is not None:
        write_all(file, data)
        return
    with open(path, "wb", buffering=0) as hidden:
        write_all(hidden.fileno(), data)


def give_name(target: str, file: int | None, path: str, *, replace: bool) -> bool:
    """Flush a finished file, then give it its name: a named file is never empty or short.

    With `replace` it takes the place of what has the name; otherwise False when the name is taken.
    The name itself survives a power loss after `sync_folder`.
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


def drop_aside(file: int | None, path: str) -> None:
    """Close a file that `open_aside` opened; a hidden one is deleted if it is still there."""
    if file is not None:
        os.close(file)
    else:
        with suppress(OSError):
            os.unlink(path)


def make_folders(folder: str) -> None:
    """Create a folder and those above it that are missing; what is created survives a power loss.

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
    """Let the names in a folder survive a power loss, and the folder itself up to `root`.

    Another process may have created the folder and died before it flushed the one above: the
    folders above are flushed once by every process.
    """
    _flush_names(folder)
    if folder in _durable_folders:
        return
    if len(_durable_folders) >= _MOST_FOLDERS:
        _durable_folders.clear()
    above = folder
    while len(above) >= max(2, len(root)):
        above = os.path.dirname(above)
        # Where the folder of the table itself lies need not be ours to read.
        with suppress(PermissionError):
            _flush_names(above)
    _durable_folders.add(folder)


def flush_path(path: str) -> None:
    """Wait until the content of a file is on the disk."""
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


def _path_to(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _hidden_in(folder: str) -> str:
    return f"{folder}/{TEMPORARY}{uuid.uuid4().hex}.tmp"


def write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])
