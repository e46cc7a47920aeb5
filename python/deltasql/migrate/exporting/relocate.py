"""Rewrite the file paths of a log that is exported to another location.

A path in a log is relative to its table. If the data files are not copied, the exported log
contains their URLs. If they are copied, every file gets a relative path in the exported table, even
if it is outside the table's location, as in a shallow clone.
"""

from __future__ import annotations

import hashlib
import re
import typing
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from deltasql.exceptions import TxnLogStorageError
from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.model.actions import AddCdcFile, AddFile, Protocol, RemoveFile
from deltasql.model.deletion_vector import named_vector, vector_file
from deltasql.operations.alter.fence import unfenced
from deltasql.storage import parse_location, storage_of
from deltasql.storage.location import (
    address_url,
    data_address,
    data_name,
    is_absolute,
    location_url,
)
from deltasql.store.records import dump_dv, load_dv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config import StorageSettings
    from deltasql.model.actions import Action, DeletionVector
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

EXTERNAL = "external"
"""The folder for copies of files from outside the table's location."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_UNENCODED = re.compile(r"[A-Za-z0-9_=./%-]+")
_URL_SAFE = "/=-_.~!$&'()*+,;@:"
_VECTORS = uuid.UUID("0b8f4a3e-3f1a-4a5f-9c1d-0d6a8f0f6f52")


class Relocation(typing.Protocol):
    """Maps the file paths of a log to the paths in the exported log."""

    def path(self, path: str) -> str:
        """Return the path of a data file."""

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector that refers to its file from the exported table."""


class ReferencedData:
    """Paths for an export without data files: the exported log contains their URLs.

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
    """Paths for an export with data files: the exported log contains relative paths.

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
        """Return the name of a data file in the exported table."""
        if not is_absolute(path):
            return data_name(parse_location(self.location), path)
        try:
            return data_name(parse_location(self.location), path)
        except TxnLogStorageError:  # the file is outside the table's location
            folder, _, name = data_address(self.location, path).rpartition("/")
        digest = hashlib.sha256(folder.encode()).hexdigest()[:12]
        # Keep the partition folders, because some readers read partition values from folder names.
        parts = folder.split("/")
        while parts and "=" in parts[-1]:
            name = f"{parts.pop()}/{name}"
        return f"{EXTERNAL}/{digest}/{name}"

    def vector_name(self, vector: DeletionVector) -> str | None:
        """Return the name of a deletion vector's file in the exported table; None if inline."""
        if vector.storage_type == "p":
            return f"deletion_vector_{self._identity(vector.path_or_inline_dv)}.bin"
        file = vector_file(vector)
        return None if file is None else data_name(parse_location(self.location), file)

    def _identity(self, path: str) -> uuid.UUID:
        return uuid.uuid5(_VECTORS, data_address(self.location, path))

    def source(self, path: str, settings: StorageSettings) -> tuple[Storage, str]:
        """Return the storage and the name of a file, given its path in the log."""
        return storage_of(self.location, path, settings)


def relocated(action: Action, relocation: Relocation) -> Action:
    """Return an action with the paths of the exported log; the same object if nothing changes.

    The protocol loses the fence, because other engines may write to the exported table.
    """
    match action:
        case Protocol():
            return unfenced(action)
        case AddFile() | RemoveFile():
            path, vector = relocation.path(action.path), action.deletion_vector
            moved = None if vector is None else relocation.vector(vector)
            if path == action.path and moved == vector:
                return action
            return replace(action, path=path, deletion_vector=moved)
        case AddCdcFile():
            path = relocation.path(action.path)
            return action if path == action.path else replace(action, path=path)
        case _:
            return action


class RelocatedSource(CheckpointSource):
    """A version of a table with the paths of the exported log, as the source of a checkpoint."""

    def __init__(self, store: Store, table: TableRow, version: int, relocation: Relocation) -> None:
        super().__init__(store, table, version)
        self.protocol = unfenced(self.protocol)
        self._relocation = relocation

    def live_files(self) -> Iterator[pa.Table]:
        """Yield the live files in ranges of file ids."""
        return map(self._relocated, super().live_files())

    def tombstones(self) -> Iterator[pa.Table]:
        """Yield the tombstones that vacuum must still respect."""
        return map(self._relocated, super().tombstones())

    def _relocated(self, files: pa.Table) -> pa.Table:
        paths = [self._relocation.path(path) for path in files["path"].to_pylist()]
        vectors = [self._vector(text) for text in files["deletion_vector"].to_pylist()]
        for name, values in (("path", paths), ("deletion_vector", vectors)):
            index = files.schema.get_field_index(name)
            files = files.set_column(index, name, pa.array(values, pa.string()))
        return files

    def _vector(self, text: str | None) -> str | None:
        vector = load_dv(text)
        return text if vector is None else dump_dv(self._relocation.vector(vector))
