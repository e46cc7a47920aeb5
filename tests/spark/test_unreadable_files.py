"""Errors about files that Spark cannot read name the file or column and a remedy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql.spark
from deltasql.exceptions import (
    MissingDataFilesError,
    TxnLogEngineError,
    TxnLogError,
    UnsupportedFeatureError,
)
from tests.migrate.handwritten import PROTOCOL, VECTORS, HandwrittenTable, column, metadata
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
IDS = metadata(column("id"))
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 2,
}


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


def check_named(read: Callable[[], object], kind: type[TxnLogError], *texts: str) -> None:
    with pytest.raises(kind) as failure:
        read()
    for text in (*texts, "\nHelp: "):
        assert text in str(failure.value), str(failure.value)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_read_error_names_the_unreadable_file_or_column(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    def made(name: str, *actions: dict[str, object]) -> HandwrittenTable:
        table = HandwrittenTable(tmp_path / name)
        table.commit(*actions, table.add("a.parquet", ROWS), table.add("b.parquet", ROWS))
        lake.import_table(table.path, name=name)
        return table

    def in_transaction(name: str, version: int | None = None) -> object:
        with lake.begin() as tx:
            tx.pin(name, lake.table(name).snapshot(version))
            return tx.read(name, engine="spark")

    def frame(name: str) -> object:
        return deltasql.spark.read(spark, lake.uri.with_table(name).to_string())

    with lake.begin() as tx:
        tx.write("vacuumed", ROWS)
    (path,) = lake.table("vacuumed").files()["path"].to_pylist()
    with lake.begin() as tx:
        tx.write("vacuumed", ROWS, mode="overwrite")
    lake.vacuum("vacuumed", retention_hours=0, dry_run=False, enforce_retention_duration=False)
    check_named(lambda: in_transaction("vacuumed", 0), MissingDataFilesError, path, "VACUUM")

    place = made("damaged", PROTOCOL, IDS).folder / "b.parquet"
    whole = place.read_bytes()
    for content in (b"hello", whole[:20] + b"\xff" * 40 + whole[60:]):
        place.write_bytes(content)
        texts = (place.name, "Restore the file")
        check_named(lambda: in_transaction("damaged"), TxnLogEngineError, *texts)

    made("unknown", PROTOCOL, metadata(column("id"), column("x", "hologram")))
    for read in (in_transaction, frame):
        check_named(partial(read, "unknown"), UnsupportedFeatureError, "hologram", "'x'")

    table = HandwrittenTable(tmp_path / "vector")
    table.commit(VECTORS, IDS, table.add("a.parquet", ROWS, deletionVector=VECTOR))
    lake.import_table(table.path, name="vector", force=True)
    for read in (in_transaction, frame):
        vector = "ab/deletion_vector_d2c639aa"
        check_named(partial(read, "vector"), MissingDataFilesError, vector)


@pytest.mark.everything("Python workers of the data source, which reads by DuckDB")
def test_data_source_error_names_the_unreadable_file(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    """Spark raises its own error, which contains the text of ours."""
    deltasql.spark.register(spark)
    table = HandwrittenTable(tmp_path / "t")
    table.commit(PROTOCOL, IDS, table.add("a.parquet", ROWS))
    lake.import_table(table.path, name="t")
    uri = lake.uri.with_table("t").to_string()
    (table.folder / "a.parquet").write_bytes(b"hello")
    with pytest.raises(Exception, match=r"(?s)TxnLogEngineError.*a\.parquet.*Help: "):
        spark.read.format("deltasql").load(uri).collect()
    (table.folder / "a.parquet").unlink()
    with pytest.raises(Exception, match=r"(?s)MissingDataFilesError.*a\.parquet.*VACUUM"):
        spark.read.format("deltasql").load(uri).collect()
