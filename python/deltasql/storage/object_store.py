"""Files in an object store: S3 and compatible stores, Azure and Google Cloud Storage."""

from __future__ import annotations

import io
import random
import time
from contextlib import contextmanager, suppress
from itertools import count, islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from deltasql.exceptions import TxnLogStorageError
from deltasql.storage.base import (
    FileInfo,
    Sink,
    Storage,
    check_length,
    stream_from,
)
from deltasql.storage.client import Client, client_for
from deltasql.storage.driver import check_fork, driver, storage_errors
from deltasql.storage.location import Location, checked, data_name, folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from deltasql.config import StorageSettings

_READ_AHEAD = 1024 * 1024
# While a file is written, at most _PIECE * _PIECES bytes of it are in memory.
_PIECE = 8 * 1024 * 1024
_PIECES = 4
_BULK = 1000  # names per delete or list request
_LARGEST_COPY = 5 * 1024**3  # S3's limit for a copy without a download
_LONGEST_WAIT_S = 5.0
_START_AFTER = ("s3", "gs")  # for other stores the driver lists all names and filters them


class ObjectStorage:
    """The objects whose keys start with one prefix."""

    def __init__(self, place: Location, client: Client) -> None:
        self._place = place
        self._client = client
        self._prefix = f"{place.path}/" if place.path else ""

    @classmethod
    def open(cls, place: Location, settings: StorageSettings) -> ObjectStorage:
        """Return the storage of a location, with the shared client of its bucket."""
        return cls(place, client_for(place, settings))

    def __repr__(self) -> str:
        return f"ObjectStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The location, without secrets."""
        return self._place.text

    def put_if_absent(self, name: str, data: bytes, *, flush_folder: bool = True) -> bool:
        """Create a file atomically; return False and change nothing if it exists.

        If the response of the store was lost, False may be returned although this call created the
        file. To find out, compare the content.
        """
        key, errors = self._key(name, "put_if_absent"), driver().exceptions
        for attempt in count():
            try:
                with self._translated("put_if_absent", name):
                    try:
                        driver().put(self._store, key, data, mode="create", use_multipart=False)
                        return True
                    except errors.AlreadyExistsError:
                        # S3 also reports this if a concurrent request to create the file conflicted
                        # with ours and failed.
                        if self.exists(name):
                            return False
                        raise
            except TxnLogStorageError as error:
                # The driver itself retries requests that certainly had no effect. After this error,
                # the request may have succeeded and only its response was lost, so check whether
                # the file exists.
                retried = isinstance(
                    error.__cause__, errors.GenericError | errors.AlreadyExistsError
                )
                if not retried or attempt >= self._client.retries:
                    raise
                if self.exists(name):
                    return False
            _wait(attempt)
        raise AssertionError("unreachable")

    def flush_folder(self, name: str) -> None:
        """Do nothing: an object is durable when its request returns."""

    def make_root(self) -> None:
        """Do nothing: an object store has no folders."""

    def flush(self, names: Iterable[str]) -> None:
        """Do nothing: an object is durable when its request returns."""

    def put(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Create or replace a file atomically."""
        key = self._key(name, "put")
        with self._translated("put", name):
            driver().put(self._store, key, data, use_multipart=False)

    @contextmanager
    def writer(
        self, name: str, *, small: bool = False, flush_folder: bool = True
    ) -> Iterator[Sink]:
        """Write a file as a stream; it gets its name when the block ends without an error."""
        key = self._key(name, "writer")
        upload = driver().open_writer(self._store, key, buffer_size=_PIECE, max_concurrency=_PIECES)
        upload.__enter__()
        try:
            yield _Sink(upload, self.location, name)
        except BaseException as error:
            # Abort the upload. If the abort fails, too, raise the original error.
            with suppress(driver().exceptions.BaseError, OSError):
                check_fork()
                upload.__exit__(type(error), error, error.__traceback__)
            raise
        with self._translated("writer", name):
            check_fork()
            upload.__exit__(None, None, None)

    def read(self, name: str) -> bytes:
        """Return the content of a file of at most LONGEST_READ bytes."""
        key = self._key(name, "read")
        with self._translated("read", name):
            found = driver().get(self._store, key)
            check_length(int(found.meta["size"]), name, self.location)
            return bytes(found.bytes())

    def open_input(self, name: str) -> BinaryIO:
        """Open a file for random access; only the requested ranges are read."""
        key = self._key(name, "open_input")
        reader = _Reader(lambda: self._store, key, self.location, name)
        return cast("BinaryIO", io.BufferedReader(reader, _READ_AHEAD))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[FileInfo]:
        """List all files below a folder, recursively, sorted by name."""
        folder = folder_of(self.location, prefix)
        below = f"{folder}/" if folder else ""
        last = start_after or ""
        with self._translated("list", prefix):
            pages = driver().list(
                self._store,
                f"{self._prefix}{folder}".rstrip("/") or None,
                offset=f"{self._prefix}{start_after}" if start_after else None,
                chunk_size=_BULK,
            )
            for page in pages:
                for each in page:
                    name = each["path"].removeprefix(self._prefix)
                    if not name.startswith(below):
                        continue  # an object that represents the folder itself
                    if name <= last:
                        raise self._unsorted(prefix)
                    last = name
                    yield FileInfo(name, each["size"], _milliseconds(each["last_modified"]))
                check_fork()  # the next page is another request

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the direct subfolders of a folder, sorted, each with a slash at the end."""
        folder = folder_of(self.location, prefix)
        key = f"{self._prefix}{folder}".rstrip("/") or None
        with self._translated("folders", prefix):
            found = driver().list_with_delimiter(self._store, key)["common_prefixes"]
        return sorted(f"{each.removeprefix(self._prefix).rstrip('/')}/" for each in found)

    @property
    def starts_anywhere(self) -> bool:
        """Whether a listing with `start_after` skips earlier names without reading them."""
        return self._place.scheme in _START_AFTER

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        try:
            self._size(name, "exists")
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._size(name, "size")

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        key = self._key(name, "delete")
        try:
            with self._translated("delete", name):
                driver().delete(self._store, key)
        except FileNotFoundError:
            return

    def delete_many(self, names: Iterable[str]) -> None:
        """Delete files, up to 1000 per request; ignore missing files."""
        rest = iter(names)
        while some := [*islice(rest, _BULK)]:
            try:
                with self._translated("delete_many", some[0]):
                    keys = [self._key(name, "delete_many") for name in some]
                    driver().delete(self._store, keys)
            except FileNotFoundError:
                # Some stores fail if a file is missing, and do not delete the other files of the
                # request.
                for name in some:
                    self.delete(name)

    def copy_from(
        self, source: Storage, name: str, *, to: str | None = None, flush_folder: bool = True
    ) -> None:
        """Copy a file from another storage, by default under the same name."""
        if isinstance(source, ObjectStorage) and source._client is self._client:
            self._copy(source, name, to or name)
        else:
            stream_from(source, name, self, to or name)

    def rename(self, name: str, to: str, *, flush_folder: bool = True) -> None:
        """Rename a file by a copy and a deletion; an existing file is replaced."""
        self._copy(self, name, to)
        self.delete(name)

    def data_name(self, path: str) -> str:
        """Return the name of the file to which the `path` of an action refers."""
        return data_name(self._place, path)

    @property
    def _store(self) -> Any:
        return self._client.store

    def _key(self, name: str, operation: str) -> str:
        return f"{self._prefix}{checked(self.location, name, operation)}"

    def _size(self, name: str, operation: str) -> int:
        key = self._key(name, operation)
        with self._translated(operation, name):
            return int(driver().head(self._store, key)["size"])

    def _copy(self, source: ObjectStorage, name: str, to: str) -> None:
        if source._size(name, "copy") > _LARGEST_COPY:
            stream_from(source, name, self, to)
            return
        with self._translated("copy", name):
            driver().copy(self._store, source._key(name, "copy"), self._key(to, "copy"))

    def _translated(self, operation: str, name: str) -> AbstractContextManager[None]:
        return storage_errors(self.location, operation, name)

    def _unsorted(self, prefix: str) -> TxnLogStorageError:
        return TxnLogStorageError(
            f"{self.location} does not list its files in the order of their names",
            location=self.location,
            name=prefix,
            operation="list",
            help="Use a general purpose bucket: directory buckets list files in no defined order.",
        )


class _Reader(io.RawIOBase):
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


class _Sink(io.RawIOBase):
    """Writes one object in pieces; it is completed by the end of `writer`, not by `close()`."""

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


def _wait(attempt: int) -> None:
    time.sleep(min(0.1 * 2**attempt, _LONGEST_WAIT_S) * random.uniform(0.5, 1.0))


def _milliseconds(timestamp: datetime) -> int:
    return int(timestamp.timestamp() * 1000)
