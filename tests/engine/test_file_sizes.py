"""Existing and missing files of a table and of other tables, by listing or single requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.config import StorageSettings
from deltasql.engine.files import file_sizes
from deltasql.engine.files.file_sizes import FileSizes
from deltasql.model.actions import DeletionVector
from deltasql.model.deletion_vector import vector_file
from deltasql.storage import open_storage
from deltasql.storage.object_store import ObjectStorage
from deltasql.store.records import dump_dv

if TYPE_CHECKING:
    from pathlib import Path

# Paths in the log, and the size of each file; None: the file does not exist.
OWN = {"a.parquet": 1, "p=1%20x/b.parquet": 2, "gone.parquet": None, "p=2/gone.parquet": None}
OTHERS = {"c.parquet": 3, "day=1/e%3Dd.parquet": 4, "lost.parquet": None, "day=9/f": None}
VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", offset=1, size_in_bytes=4, cardinality=1)


def listed(sizes: dict[str, int | None], vector: str | None = None) -> pa.Table:
    vectors = pa.array([vector] * len(sizes), pa.string())
    return pa.table({"path": [*sizes], "deletion_vector": vectors})


def make(folder: str, sizes: dict[str, int | None], settings: StorageSettings) -> None:
    storage = open_storage(folder, settings)
    for path, size in sizes.items():
        if size is not None:
            storage.put(storage.data_name(path), b"x" * size)


def look(root: str, settings: StorageSettings) -> None:
    own, other = f"{root}/own", f"{root}/other table"
    make(own, OWN, settings)
    make(other, OTHERS, settings)
    address = open_storage(other, settings).location.replace(" ", "%20")
    address = f"file://{address}" if address.startswith("/") else address
    named = OWN | {f"{address}/{path}": size for path, size in OTHERS.items()}
    sizes = FileSizes(own, settings)
    for _ in range(2):  # the second time from the cache
        assert dict(zip(named, sizes.of(listed(named)), strict=True)) == named
    assert sizes.missing(listed(named)) == [path for path, size in named.items() if size is None]


def test_sizes_are_found_for_files_in_and_outside_the_table_folder(tmp_path: Path) -> None:
    look(str(tmp_path), StorageSettings())


@pytest.mark.parametrize("listed_from", [1, 100], ids=["listed", "requested"])
def test_sizes_of_files_in_a_bucket_are_found(
    s3_location: str,
    s3_options: dict[str, str],
    listed_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_sizes, "_LISTED_FROM", listed_from)
    look(s3_location, StorageSettings(options=s3_options))


def test_sizes_of_many_files_come_from_one_listing(
    s3_location: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One listing is enough even if many files are missing, or are in many partition folders."""
    monkeypatch.setattr(file_sizes, "_LISTED_FROM", 50)
    requested: list[str] = []
    size = ObjectStorage.size
    monkeypatch.setattr(
        ObjectStorage, "size", lambda self, name: (requested.append(name), size(self, name))[1]
    )
    settings = StorageSettings(options=s3_options)
    make(f"{s3_location}/other", OTHERS, settings)
    wanted = [f"{s3_location}/other/day={number}/f.parquet" for number in range(100)]
    names = [*wanted, *(f"p={number}/f.parquet" for number in range(100))]
    table = listed(dict.fromkeys(names))
    assert FileSizes(f"{s3_location}/own", settings).missing(table) == names
    assert requested == []


def test_file_without_its_deletion_vector_is_missing(tmp_path: Path) -> None:
    settings = StorageSettings()
    make(str(tmp_path), {"a.parquet": 1}, settings)
    table, sizes = listed({"a.parquet": 1}, dump_dv(VECTOR)), FileSizes(str(tmp_path), settings)
    assert sizes.missing(table) == ["a.parquet"]
    file = vector_file(VECTOR)
    assert file is not None
    make(str(tmp_path), {file: 4}, settings)
    assert sizes.of(table) == [1]
