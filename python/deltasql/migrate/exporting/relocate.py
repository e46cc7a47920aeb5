"""A log that moves while its data stays, or both: how files are named at the new place.

A path in a log is relative to its table. Where the data stays behind, the moved log names every
file by its URL; where the data comes along, every file lies below the new place, also one that
the table had from elsewhere, as a shallow clone does.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import pyarrow as pa

from deltasql.engine.files.addresses import address_url, data_address, is_absolute, storage_of
from deltasql.exceptions import TxnLogStorageError
from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.model.actions import AddCdcFile, AddFile, RemoveFile
from deltasql.model.deletion_vector import named_vector, vector_file
from deltasql.storage import parse_location
from deltasql.storage.location import data_name, location_url
from deltasql.store.records import dump_dv, load_dv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config import StorageSettings
    from deltasql.model.actions import Action, DeletionVector
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

EXTERNAL = "external"
"""The folder for files that the table had from elsewhere."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PLAIN = re.compile(r"[A-Za-z0-9_=./%-]+")
_KEPT = "/=-_.~!$&'()*+,;@:"
_VECTORS = uuid.UUID("0b8f4a3e-3f1a-4a5f-9c1d-0d6a8f0f6f52")


class Relocation(Protocol):
    """How a moved log names files."""

    def path(self, path: str) -> str:
        """Return the path of a data file."""

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a deletion vector that leads to its file from the new place."""


class StayBehind:
    """The data stays where it is: files are named by URLs.

    >>> StayBehind("/lake/sales eu").path("day=1%2F2/a b.parquet")
    'file:///lake/sales%20eu/day=1%2F2/a%20b.parquet'
    >>> StayBehind("/lake/sales").path("s3://other/a.parquet")
    's3://other/a.parquet'
    """

    def __init__(self, location: str) -> None:
        self._location, self._root = location, location_url(location)

    def path(self, path: str) -> str:
        """Return the URL of a data file; one that is named by a URL keeps it."""
        if _URL.match(path):
            return path
        # What is encoded stays as it is: two paths never become one.
        encoded = path if _PLAIN.fullmatch(path) else quote(path, safe=f"{_KEPT}%")
        return f"file://{encoded}" if path.startswith("/") else f"{self._root}/{encoded}"

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a vector that names its file by its URL."""
        if vector.storage_type != "u":
            return vector
        file = vector_file(vector)
        assert file is not None
        url = address_url(data_address(self._location, file))
        return replace(vector, storage_type="p", path_or_inline_dv=url)


@dataclass(frozen=True, slots=True)
class ComeAlong:
    """The data is copied too: every file has a name below the new place.

    >>> move = ComeAlong("/lake/sales")
    >>> move.path("day=1%2F2/a.parquet"), move.path("file:///lake/sales/a%20b.parquet")
    ('day=1%2F2/a.parquet', 'a%20b.parquet')
    >>> move.path("s3://other/t/day=1/b.parquet")
    'external/a1dece5b7c7c/day=1/b.parquet'
    """

    location: str

    def path(self, path: str) -> str:
        """Return the path of a data file, relative in any case."""
        return quote(self.name(path), safe=_KEPT) if is_absolute(path) else path

    def vector(self, vector: DeletionVector) -> DeletionVector:
        """Return a vector whose file lies beside the data; only that form can be relative."""
        if vector.storage_type != "p":
            return vector
        named = named_vector(self._identity(vector.path_or_inline_dv))
        return replace(vector, storage_type="u", path_or_inline_dv=named)

    def name(self, path: str) -> str:
        """Return the name that a data file gets at the new place."""
        if not is_absolute(path):
            return data_name(parse_location(self.location), path)
        try:
            return data_name(parse_location(self.location), path)
        except TxnLogStorageError:  # it lies outside of the table
            folder, _, name = data_address(self.location, path).rpartition("/")
        digest = hashlib.sha256(folder.encode()).hexdigest()[:12]
        # Some readers take partition values from the names of folders.
        parts = folder.split("/")
        while parts and "=" in parts[-1]:
            name = f"{parts.pop()}/{name}"
        return f"{EXTERNAL}/{digest}/{name}"

    def vector_name(self, vector: DeletionVector) -> str | None:
        """Return the name that a vector's file gets at the new place; None = it has none."""
        if vector.storage_type == "p":
            return f"deletion_vector_{self._identity(vector.path_or_inline_dv)}.bin"
        file = vector_file(vector)
        return None if file is None else data_name(parse_location(self.location), file)

    def _identity(self, path: str) -> uuid.UUID:
        return uuid.uuid5(_VECTORS, data_address(self.location, path))

    def source(self, path: str, settings: StorageSettings) -> tuple[Storage, str]:
        """Return where a file that the log names is now."""
        return storage_of(self.location, path, settings)


def relocated(action: Action, move: Relocation) -> Action:
    """Return an action as the moved log tells it; the same object where nothing changes."""
    match action:
        case AddFile() | RemoveFile():
            path, vector = move.path(action.path), action.deletion_vector
            moved = None if vector is None else move.vector(vector)
            if path == action.path and moved == vector:
                return action
            return replace(action, path=path, deletion_vector=moved)
        case AddCdcFile():
            path = move.path(action.path)
            return action if path == action.path else replace(action, path=path)
        case _:
            return action


class RelocatedSource(CheckpointSource):
    """One version of a table, as the checkpoint of a moved log has to tell it."""

    def __init__(self, store: Store, table: TableRow, version: int, move: Relocation) -> None:
        super().__init__(store, table, version)
        self._move = move

    def live_files(self) -> Iterator[pa.Table]:
        """Yield the live files by ranges of their ids."""
        return map(self._relocated, super().live_files())

    def tombstones(self) -> Iterator[pa.Table]:
        """Yield the removals that vacuum must still respect."""
        return map(self._relocated, super().tombstones())

    def _relocated(self, files: pa.Table) -> pa.Table:
        paths = [self._move.path(path) for path in files["path"].to_pylist()]
        vectors = [self._vector(text) for text in files["deletion_vector"].to_pylist()]
        for name, values in (("path", paths), ("deletion_vector", vectors)):
            place = files.schema.get_field_index(name)
            files = files.set_column(place, name, pa.array(values, pa.string()))
        return files

    def _vector(self, text: str | None) -> str | None:
        vector = load_dv(text)
        return text if vector is None else dump_dv(self._move.vector(vector))
