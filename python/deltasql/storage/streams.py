"""Read and write objects of an object store in pieces."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from deltasql.storage.driver import check_fork, driver
from deltasql.storage.faults import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable

# While a file is written, at most PIECE * PIECES bytes of it are in memory.
PIECE = 8 * 1024 * 1024
PIECES = 4


class ObjectReader(io.RawIOBase):
    """Reads ranges of one object; each `readinto` is one request."""

    def __init__(self, store: Callable[[], Any], key: str, location: str, name: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._place = (location, "open_input", name)
        self._position = 0
        with storage_errors(*self._place):
            self._size = int(driver().head(store(), key)["size"])

    def readinto(self, buffer: Any, /) -> int:
        """Read into the buffer from the current position; return 0 at the end."""
        with memoryview(buffer) as view:
            wanted = min(len(view), self._size - self._position)
            if wanted <= 0:
                return 0
            with storage_errors(*self._place):
                data = driver().get_range(
                    self._store(), self._key, start=self._position, length=wanted
                )
            view[:wanted] = memoryview(data)
        self._position += wanted
        return wanted

    def readall(self) -> bytes:
        """Read the rest of the object with one request."""
        data = bytearray(max(0, self._size - self._position))
        self.readinto(data)
        return bytes(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: every position can be read."""
        return True


class ObjectSink(io.RawIOBase):
    """Writes one object in pieces; the end of the `writer` block completes it, not `close()`."""

    def __init__(self, upload: Any, location: str, name: str) -> None:
        super().__init__()
        self._upload = upload
        self._place = (location, "writer", name)
        self._written = 0

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        piece = bytes(data)
        with storage_errors(*self._place):
            check_fork()
            self._upload.write(piece)
        self._written += len(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._written

    def writable(self) -> bool:
        """Return True."""
        return True
