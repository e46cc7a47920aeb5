"""Tables with column mapping by id: files are read by field id, not by column name.

delta-spark is the oracle. deltalake 1.6 reads such files by name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TxnLogEngineError, TxnLogProtocolError
from deltasql.storage import open_storage
from tests.migrate.handwritten import (
    MAPPED,
    HandwrittenTable,
    array,
    column,
    metadata,
    numbered,
    struct,
)
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database
CONFIGURATION = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "20"}
PART = struct(column("x", "long", 5, "col-x"), column("y", "string", 6, "col-y"))
COLUMNS = [
    column("id", "long", 1, "col-id"),
    column("name", "string", 2, "col-name"),
    column("at", "timestamp", 3, "col-at"),
    column("part", PART, 4, "col-part"),
    column("parts", array(struct(column("z", "long", 8, "col-z"))), 7, "col-parts"),
    column("day", "string", 9, "col-day"),
]
ROWS = [
    # the first file has the names of the schema, the second has swapped names
    {"id": 1, "name": "a", "part": {"x": 10, "y": "u"}, "parts": [{"z": 5}], "day": "mon"},
    {"id": 2, "name": "b", "part": None, "parts": [], "day": "mon"},
    {"id": 3, "name": "c", "part": {"x": 30, "y": None}, "parts": None, "day": "tue"},
    {"id": 4, "name": None, "part": None, "parts": None, "day": None},
]


def stored(
    names: dict[int, str], rows: list[dict[str, Any]], *, only: set[int] | None = None
) -> pa.Table:
    """Return the rows of a file whose columns have these names by id."""
    part = pa.struct([numbered(names[6], pa.string(), 6), numbered(names[5], pa.int64(), 5)])
    parts = pa.list_(pa.field("element", pa.struct([numbered(names[8], pa.int64(), 8)])))
    kinds = {1: pa.int64(), 2: pa.string(), 4: part, 7: parts}
    logical = {1: "id", 2: "name", 4: "part", 7: "parts"}
    members = {"x": names[5], "y": names[6], "z": names[8]}

    def spelled(value: Any) -> Any:
        if isinstance(value, dict):
            return {members[key]: each for key, each in value.items()}
        return [spelled(each) for each in value] if isinstance(value, list) else value

    chosen = [number for number in (7, 2, 1, 4) if only is None or number in only]
    arrays = [
        pa.array([spelled(row[logical[number]]) for row in rows], kinds[number])
        for number in chosen
    ]
    fields = [numbered(names[number], kinds[number], number) for number in chosen]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


OWN = {1: "col-id", 2: "col-name", 4: "col-part", 5: "col-x", 6: "col-y", 7: "col-parts", 8: "z"}
# Each name belongs to another column, so reading by name gives wrong rows or nulls.
SWAPPED = {1: "col-name", 2: "col-id", 4: "part", 5: "col-y", 6: "col-x", 7: "p", 8: "col-z"}


FOREIGN = {1: "c1", 2: "c2", 4: "c4", 5: "c5", 6: "c6", 7: "c7", 8: "c8"}


def write(folder: Path, names: dict[int, str] = SWAPPED) -> HandwrittenTable:
    table = HandwrittenTable(folder)

    def stats(low: int, high: int) -> str:
        return json.dumps(
            {"numRecords": 2, "minValues": {"col-id": low}, "maxValues": {"col-id": high}}
        )

    table.commit(
        MAPPED,
        metadata(*COLUMNS, configuration=CONFIGURATION, partitionColumns=["day"]),
        table.add(
            "a.parquet",
            stored(OWN, ROWS[:2]),
            partitionValues={"col-day": "mon"},
            stats=stats(1, 2),
        ),
        table.add("b.parquet", stored(names, ROWS[2:3]), partitionValues={"col-day": "tue"}),
        # a file with only one column
        table.add(
            "c.parquet",
            stored(names, ROWS[3:], only={1}),
            partitionValues={"col-day": None},
            stats=stats(4, 4),
        ),
    )
    return table


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


def wanted(*ids: int) -> list[dict[str, Any]]:
    return [{**row, "at": None} for row in ROWS if row["id"] in ids]


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in sorted(row)} for row in rows]


def test_files_are_read_by_field_id(lake: Catalog, tmp_path: Path) -> None:
    lake.import_table(write(tmp_path / "t").path, name="t")
    found = by_id(lake.query("SELECT * FROM t").read_all())
    assert columns(found) == columns(wanted(1, 2, 3, 4))
    with lake.begin() as tx:
        some = tx.read("t", columns=["id", "part"], predicate="id >= 3 AND day IS NOT NULL")
        assert pa.table(some).to_pylist() == [{"id": 3, "part": {"x": 30, "y": None}}]
    # statistics and partition values use physical names
    assert lake.table("t").scan("id > 2").paths() == ["b.parquet", "c.parquet"]
    assert lake.table("t").scan("day = 'tue'").paths() == ["b.parquet"]


def test_dml_on_a_table_mapped_by_id_keeps_every_value(lake: Catalog, tmp_path: Path) -> None:
    lake.import_table(write(tmp_path / "t").path, name="t")
    with lake.begin() as tx:
        tx.update("t", {"name": "'new'"}, predicate="id = 3")
        tx.delete("t", "id = 1")
    found = by_id(lake.query("SELECT * FROM t").read_all())
    expected = wanted(2, 3, 4)
    expected[1]["name"] = "new"
    assert columns(found) == columns(expected)
    with lake.begin() as tx:
        tx.optimize("t")
    assert columns(by_id(lake.query("SELECT * FROM t").read_all())) == columns(expected)


def test_files_of_an_object_store_are_read_by_field_id(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str], tmp_path: Path
) -> None:
    """Arrow reads these files, not DuckDB."""
    table = write(tmp_path / "t")
    with open_mirrored(sqlite_uri, tmp_path, storage={"options": s3_options}) as catalog:
        target = open_storage(s3_location, catalog.config.storage)
        for file in table.folder.rglob("*"):
            if file.is_file():
                target.put(str(file.relative_to(table.folder)), file.read_bytes())
        catalog.import_table(s3_location, name="t")
        found = by_id(catalog.query("SELECT * FROM t").read_all())
    assert columns(found) == columns(wanted(1, 2, 3, 4))


def test_duckdb_views_read_by_field_id(lake: Catalog, tmp_path: Path) -> None:
    lake.import_table(write(tmp_path / "t").path, name="t")
    deltasql.mirror_duckdb(lake, tmp_path / "views.duckdb")
    with duckdb.connect(str(tmp_path / "views.duckdb"), read_only=True) as connection:
        found = connection.sql("SELECT * FROM t").to_arrow_table()
    assert columns(by_id(found)) == columns(wanted(1, 2, 3, 4))


def test_error_names_a_file_without_field_ids(lake: Catalog, tmp_path: Path) -> None:
    table = HandwrittenTable(tmp_path / "t")
    rows = pa.table({"col-id": [1]})
    ids = metadata(column("id", "long", 1, "col-id"), configuration=CONFIGURATION)
    table.commit(MAPPED, ids, table.add("bare.parquet", rows))
    lake.import_table(table.path, name="t")
    with pytest.raises(TxnLogEngineError, match=r"bare\.parquet have no field ids") as failure:
        lake.query("SELECT * FROM t").read_all()
    assert "Help: " in str(failure.value)


@pytest.mark.parametrize("mode", ["id", "name"])
@pytest.mark.parametrize("inside", [False, True])
def test_mapped_table_without_physical_names_is_rejected(
    lake: Catalog, tmp_path: Path, mode: str, inside: bool
) -> None:
    """At any nesting level, as deltalake does."""
    bare = column("bare", "long", 2)
    first = column("s", struct(bare), 1, "col-s") if inside else bare
    table = HandwrittenTable(tmp_path / "t")
    table.commit(MAPPED, metadata(first, configuration={"delta.columnMapping.mode": mode}))
    for dry_run in (True, False):
        with pytest.raises(TxnLogProtocolError, match="'bare' has no "):
            lake.import_table(table.path, name="t", dry_run=dry_run)
    assert lake.tables() == []


@pytest.mark.everything("delta-spark as a second opinion, beyond the smoke set")
def test_spark_reads_by_field_id_what_delta_spark_reads(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    from deltasql.spark import read

    for name, names in (("foreign", FOREIGN), ("swapped", SWAPPED)):
        table = write(tmp_path / name, names)
        lake.import_table(table.path, name=name)
        uri = lake.uri.with_table(name).to_string()
        frames = [read(spark, uri)]
        if names is FOREIGN:  # delta-spark 4.4 fails if a file uses the name of another column
            frames.append(spark.read.format("delta").load(table.path))
        for frame in frames:
            found = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
            assert columns(found) == columns(wanted(1, 2, 3, 4))
        filtered = read(spark, uri).where("name = 'c' AND part.x = 30").collect()
        assert [row["id"] for row in filtered] == [3]
