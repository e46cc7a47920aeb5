"""The file paths of a table whose log is written at another location: a clone or an export.

A path in a log is relative to its table. If the data files are not copied, the new log contains
their URLs. If they are copied, every file gets a relative path in the new table, even if it is
outside the location of its own table, as in a shallow clone.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from deltasql.exceptions import TxnLogStorageError
from deltasql.model.deletion_vector import named_vector, vector_file
from deltasql.storage import parse_location, storage_of
from deltasql.storage.location import (
    address_url,
    data_address,
    data_name,
    is_absolute,
    location_url,
)

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.model.actions import DeletionVector
    from deltasql.storage import Storage

EXTERNAL = "external"
"""The folder for copies of files from outside the table's location."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_UNENCODED = re.compile(r"[A-Za-z0-9_=./%-]+")
_URL_SAFE = "/=-_.~!$&'()*+,;@:"
_VECTORS = uuid.UUID("0b8f4a3e-3f1a-4a5f-9c1d-0d6a8f0f6f52")


class Relocation(Protocol):
    """Maps the file paths of a log to the paths in the new log."""

    def path(self, path: str) -> str:
        """Return the path of a data file."""

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector with the path that its file has in the new log."""


class ReferencedData:
    """Paths for a new table that uses the data files of the old table by their URLs.

    >>> ReferencedData("/lake/sales eu").path("day=1%2F2/a b.parquet")
    'file:///lake/sales%20eu/day=1%2F2/a%20b.parquet'
    >>> ReferencedData("/lake/sales").path("s3://other/a.parquet")
    's3://other/a.parquet'
    """

    def __init__(self, location: str) -> None:
        self._location, self._root = location, location_url(location)

    def path(self, path: str) -> str:
        """Return the URL of a data file; a path that is already a URL is not changed."""
        if _URL.match(path):
            return path
        # Encoded characters stay encoded, so that two different paths never get the same URL.
        encoded = path if _UNENCODED.fullmatch(path) else quote(path, safe=f"{_URL_SAFE}%")
        return f"file://{encoded}" if path.startswith("/") else f"{self._root}/{encoded}"

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector with the URL of its file."""
        if vector.storage_type != "u":
            return vector
        file = vector_file(vector)
        assert file is not None
        url = address_url(data_address(self._location, file))
        return replace(vector, storage_type="p", path_or_inline_dv=url)


@dataclass(frozen=True, slots=True)
class CopiedData:
    """Paths for a new table with copies of the data files: its log contains relative paths.

    >>> relocation = CopiedData("/lake/sales")
    >>> relocation.path("day=1%2F2/a.parquet"), relocation.path("file:///lake/sales/a%20b.parquet")
    ('day=1%2F2/a.parquet', 'a%20b.parquet')
    >>> relocation.path("s3://other/t/day=1/b.parquet")
    'external/a1dece5b7c7c/day=1/b.parquet'
    """

    location: str

    def path(self, path: str) -> str:
        """Return the relative path of a data file."""
        return quote(self.name(path), safe=_URL_SAFE) if is_absolute(path) else path

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector with a relative path, which only storage type `u` can have."""
        if vector.storage_type != "p":
            return vector
        named = named_vector(self._identity(vector.path_or_inline_dv))
        return replace(vector, storage_type="u", path_or_inline_dv=named)

    def name(self, path: str) -> str:
        """Return the name of a data file in the new table."""
        if not is_absolute(path):
            return data_name(parse_location(self.location), path)
        try:
            return data_name(parse_location(self.location), path)
        except TxnLogStorageError:  # the file is outside the table's location
            folder, _, name = data_address(self.location, path).rpartition("/")
        digest = hashlib.sha256(folder.encode()).hexdigest()[:12]
        return f"{EXTERNAL}/{digest}/{partition_folders(folder)}{name}"

    def vector_name(self, vector: DeletionVector) -> str | None:
        """Return the name of a deletion vector's file in the new table; None if inline."""
        if vector.storage_type == "p":
            return f"deletion_vector_{self._identity(vector.path_or_inline_dv)}.bin"
        file = vector_file(vector)
        return None if file is None else data_name(parse_location(self.location), file)

    def _identity(self, path: str) -> uuid.UUID:
        return uuid.uuid5(_VECTORS, data_address(self.location, path))

    def source(self, path: str, settings: StorageSettings) -> tuple[Storage, str]:
        """Return the storage and the name of a file, given its path in the log."""
        return storage_of(self.location, path, settings)


@dataclass(frozen=True, slots=True)
class ClonedData(CopiedData):
    """Paths for a deep clone: every file gets a name that no other clone uses.

    A clone can replace a table, whose location may have files with the names of the source.
    """

    clone_id: uuid.UUID = field(default_factory=uuid.uuid4)

    def path(self, path: str) -> str:
        """Return the relative path of a data file."""
        return quote(self.name(path), safe=_URL_SAFE)

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector that refers to the copy of its file."""
        file = vector_file(vector)
        if file is None:
            return vector
        named = named_vector(self._identity(file))
        return replace(vector, storage_type="u", path_or_inline_dv=named)

    def name(self, path: str) -> str:
        """Return the name of a data file in the new table."""
        address = data_address(self.location, path)
        if not is_absolute(path):
            address = data_name(parse_location(self.location), path)
        folder, _, name = address.rpartition("/")
        _, dot, suffix = name.partition(".")
        return f"{partition_folders(folder)}part-{self._identity(path)}-c000{dot}{suffix}"

    def vector_name(self, vector: DeletionVector) -> str | None:
        """Return the name of a deletion vector's file in the new table; None if inline."""
        file = vector_file(vector)
        return None if file is None else f"deletion_vector_{self._identity(file)}.bin"

    def _identity(self, path: str) -> uuid.UUID:
        return uuid.uuid5(self.clone_id, data_address(self.location, path))


def partition_folders(folder: str) -> str:
    """Return the partition folders at the end of a path, with a slash behind them.

    Some readers read partition values from folder names.

    >>> partition_folders("/lake/sales/day=1/region=eu")
    'day=1/region=eu/'
    """
    found, parts = "", folder.split("/")
    while parts and "=" in parts[-1]:
        found = f"{parts.pop()}/{found}"
    return found
