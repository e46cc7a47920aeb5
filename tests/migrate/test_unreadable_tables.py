"""The error for data that cannot be read names the file and says what to do."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.exceptions import (
    MissingDataFilesError,
    TxnLogEngineError,
    TxnLogError,
    TxnLogStorageError,
    UnsupportedFeatureError,
    VersionGapError,
)
from tests.migrate.handwritten import (
    MAPPED,
    PROTOCOL,
    VECTORS,
    HandwrittenTable,
    column,
    metadata,
    numbered,
)
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
IDS = metadata(column("id"))


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> HandwrittenTable:
    return HandwrittenTable(tmp_path / "t")


def handle(catalog: Catalog, version: int | None = None) -> deltasql.DeltaTable:
    return deltasql.DeltaTable(catalog.uri.with_table("t").to_string(), version=version)


def ways(catalog: Catalog, version: int | None = None) -> dict[str, Callable[[], object]]:
    """Return every way to read the rows of a table in this process."""

    def in_transaction() -> object:
        with catalog.begin() as tx:
            tx.pin("t", catalog.table("t").snapshot(version))
            return tx.read("t")

    return {
        "handle": lambda: handle(catalog, version).to_pyarrow_table(),
        "transaction": in_transaction,
    }


def assert_error_contains(
    read: Callable[[], object], *texts: str, kind: type[TxnLogError] = TxnLogError
) -> None:
    # For a missing file, to_pyarrow_table raises deltalake's error.
    with pytest.raises((kind, FileNotFoundError)) as failure:
        read()
    text = "\n".join([str(failure.value), *failure.value.__notes__])
    for part in (*texts, "\nHelp: "):
        assert part in text, text


def test_error_names_files_of_a_vacuumed_version(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", ROWS)
    (path,) = lake.table("t").files()["path"].to_pylist()
    with lake.begin() as tx:
        tx.write("t", ROWS, mode="overwrite")
    lake.vacuum("t", retention_hours=0, dry_run=False, enforce_retention_duration=False)
    for read in ways(lake, 0).values():
        assert_error_contains(read, path, "is missing", "VACUUM", kind=MissingDataFilesError)


DAMAGE = {
    "no Parquet": lambda data: b"hello",
    "empty": lambda data: b"",
    "cut": lambda data: data[:-20],
    "holes": lambda data: data[:20] + b"\xff" * 40 + data[60:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_error_names_a_damaged_file(lake: Catalog, made: HandwrittenTable, name: str) -> None:
    made.commit(PROTOCOL, IDS, made.add("a.parquet", ROWS), made.add("b.parquet", ROWS))
    lake.import_table(made.path, name="t")
    place = made.folder / "b.parquet"
    place.write_bytes(DAMAGE[name](place.read_bytes()))
    for read in ways(lake).values():
        assert_error_contains(read, "b.parquet", "Restore the file", kind=TxnLogEngineError)


def test_error_names_a_missing_or_damaged_file_of_a_table_mapped_by_id(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """The footers of such files are read before the rows, to find the field ids."""
    fields = pa.schema([numbered("c", pa.int64(), 1)])
    rows = pa.Table.from_arrays([ROWS["id"].combine_chunks()], schema=fields)
    mode = {"delta.columnMapping.mode": "id"}
    schema = metadata(column("id", "long", 1, "col-id"), configuration=mode)
    made.commit(MAPPED, schema, made.add("a.parquet", rows), made.add("b.parquet", rows))
    lake.import_table(made.path, name="t")
    (made.folder / "b.parquet").write_bytes(b"hello")
    for read in ways(lake).values():
        assert_error_contains(read, "b.parquet", "Restore the file", kind=TxnLogEngineError)
    (made.folder / "b.parquet").unlink()
    for read in ways(lake).values():
        assert_error_contains(read, "b.parquet", "is missing", kind=MissingDataFilesError)


def test_error_names_a_missing_deletion_vector(lake: Catalog, made: HandwrittenTable) -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 2,
    }
    made.commit(VECTORS, IDS, made.add("a.parquet", ROWS, deletionVector=vector))
    lake.import_table(made.path, name="t", force=True)
    for read in ways(lake).values():
        assert_error_contains(read, "ab/deletion_vector_d2c639aa", kind=MissingDataFilesError)


def test_int96_timestamps_outside_the_nanosecond_range_are_read(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """They fit into INT96, but not into 64-bit nanoseconds."""
    timestamps = [datetime(1600, 1, 1), datetime(2400, 1, 1)]
    rows = pa.table({"at": pa.array(timestamps, pa.timestamp("us"))})
    add = made.add("a.parquet", ROWS)
    pq.write_table(rows, made.folder / "a.parquet", use_deprecated_int96_timestamps=True)
    made.commit(PROTOCOL, metadata(column("at", "timestamp")), add)
    lake.import_table(made.path, name="t")
    wanted = [timestamp.replace(tzinfo=UTC) for timestamp in timestamps]
    for read in ways(lake).values():
        assert pa.table(read())["at"].to_pylist() == wanted


def test_error_names_an_unknown_type(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, metadata(column("id"), column("x", "hologram")), made.add("a", ROWS))
    lake.import_table(made.path, name="t")
    read = ways(lake)["transaction"]
    assert_error_contains(read, "hologram", "'x'", kind=UnsupportedFeatureError)


def test_error_names_a_missing_sidecar(lake: Catalog, made: HandwrittenTable) -> None:
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    made.commit(protocol, IDS, made.add("a.parquet", ROWS))
    made.commit({"commitInfo": {}})
    (made.log / f"{0:020d}.json").unlink()
    sidecar = {"path": "gone.parquet", "sizeInBytes": 5, "modificationTime": 1}
    lines = [{"checkpointMetadata": {"version": 0}}, protocol, IDS, {"sidecar": sidecar}]
    name = f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (made.log / name).write_text("\n".join(map(json.dumps, lines)))
    assert_error_contains(
        lambda: lake.import_table(made.path, name="t"),
        "_sidecars/gone.parquet",
        "checkpoint",
        kind=TxnLogStorageError,
    )


def test_error_names_an_incomplete_checkpoint(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, IDS, made.add("a.parquet", ROWS))
    deltalake.DeltaTable(made.path).create_checkpoint()
    made.commit({"commitInfo": {}})
    (made.log / f"{0:020d}.json").unlink()
    part = f"{0:020d}.checkpoint.0000000001.0000000002.parquet"
    os.replace(made.log / f"{0:020d}.checkpoint.parquet", made.log / part)
    assert_error_contains(
        lambda: lake.import_table(made.path, name="t"),
        "checkpoint 0 has 1 of 2 parts",
        kind=VersionGapError,
    )
