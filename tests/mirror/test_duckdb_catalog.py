"""The views of a DuckDB catalog file return the rows that other readers see, after every commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from tests.conftest import add_file
from tests.mirror.duckdb_support import IDS, elsewhere, opened, view_rows
from tests.mirror.support import open_mirrored
from tests.oracles import tables, tables_staged
from tests.oracles.fixed_set import CHOSEN
from tests.oracles.foreign import stage_all_commits
from tests.oracles.states import arrow_rows
from tests.oracles.writing import Written, create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.duckdb"


@pytest.mark.parametrize("make", CHOSEN, ids=lambda make: make.__name__)
def test_view_has_the_rows_of_every_commit(
    lake: Catalog,
    path: Path,
    make: Callable[[Catalog], list[Written]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deltasql.mirror_duckdb(lake, path)
    became = Written.became

    def expect_in_view(written: Written, rows: Any) -> None:
        became(written, rows)
        assert view_rows(path, written.name) == written.states[-1]

    monkeypatch.setattr(Written, "became", expect_in_view)
    for written in make(lake):
        with opened(path) as db:
            shown = db.execute("SELECT version, error FROM deltasql.tables").fetchall()
        assert shown == [(written.table.version(), None)]


def test_view_returns_the_rows_of_deltalake(lake: Catalog, path: Path) -> None:
    [written] = tables.typed_partitions(lake)
    deltasql.mirror_duckdb(lake, path)
    stock = deltalake.DeltaTable(written.table.location).to_pyarrow_table()
    assert view_rows(path, "typed_partitions") == arrow_rows(stock)
    ids = elsewhere(path, "SELECT id, tiny FROM typed_partitions WHERE day = '9999-12-31'")
    assert sorted(ids) == [(2, 127), (3, 127)]


@pytest.mark.everything("tables of delta-spark, beyond the smoke set")
def test_view_reads_a_table_of_delta_spark(
    lake: Catalog, spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    source, timestamp = tmp_path / "source", "TIMESTAMP '2024-02-29 23:30:00Z'"
    for statement in (
        """CREATE TABLE {0}
             (id BIGINT, s STRUCT<`a b`: BIGINT, at: TIMESTAMP>, at TIMESTAMP, day DATE)
           USING delta PARTITIONED BY (day) TBLPROPERTIES (
             'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')""",
        """INSERT INTO {0} SELECT /*+ REPARTITION(1) */ id, struct(id, {1}), {1}, DATE '2024-02-29'
           FROM range(200000)""",
        "DELETE FROM {0} WHERE id % 3 = 0 OR id BETWEEN 70000 AND 150000",
    ):
        spark.sql(statement.format(f"delta.`{source}`", timestamp))
    written = stage_all_commits(lake, spark, source, tmp_path / "foreign")
    deltasql.mirror_duckdb(lake, path)
    with opened(path, "Asia/Tokyo") as db:
        found = db.execute(
            """SELECT count(*), sum(id), sum(s['a b']), min(epoch(s['at'])), max(epoch("at")),
                      min(day) FROM "foreign" """
        ).fetchall()
    kept = [n for n in range(200_000) if n % 3 and not 70_000 <= n <= 150_000]
    at = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)
    epoch = at.timestamp()
    assert found == [(len(kept), sum(kept), sum(kept), epoch, epoch, at.date())]
    assert len(written.states[-1].rows) == len(kept)


@pytest.mark.everything("ten thousand files")
def test_view_reads_ten_thousand_files(lake: Catalog, path: Path) -> None:
    deltasql.mirror_duckdb(lake, path)
    [written] = tables_staged.many_files(lake)
    assert elsewhere(path, "SELECT count(*), sum(id) FROM many_files WHERE part = 7") == [
        (1000, 7000)
    ]
    assert view_rows(path, "many_files") == written.states[-1]


@pytest.mark.parametrize("int96", [True, False], ids=["int96", "naive"])
def test_timestamps_stored_without_zone_are_utc_in_any_session(
    lake: Catalog, path: Path, int96: bool
) -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [
            *(("id", pa.int64()), ("at", at)),
            *(("s", pa.struct([("at", at), ("n", pa.int64())])), ("l", pa.list_(at))),
            ("m", pa.map_(pa.string(), pa.struct([("at", at)]))),
        ]
    )
    written = create(lake, "timestamps", schema)
    timestamp = datetime(2024, 2, 29, 23, 30, 0, 250, UTC)
    row = {"id": 1, "at": timestamp, "s": {"at": timestamp, "n": 1}, "l": [timestamp, None]}
    rows = [{**row, "m": [("k", {"at": timestamp})]}, {}]
    written.append(rows)
    data = written.arrow(rows)
    plain = data if int96 else data.cast(_without_zones(schema))
    target = Path(written.table.location) / "old.parquet"
    pq.write_table(plain, target, use_deprecated_int96_timestamps=int96)
    written.stage([add_file("old.parquet", size=target.stat().st_size)], [*rows, *rows])
    deltasql.mirror_duckdb(lake, path)
    assert view_rows(path, "timestamps") == written.states[-1]
    with opened(path, "Asia/Tokyo") as db:
        query = (
            "SELECT DISTINCT epoch_us(\"at\"), epoch_us(s['at']), epoch_us(l[1]) FROM timestamps"
        )
        [found] = db.execute(f"{query} WHERE id = 1").fetchall()
    assert set(found) == {int(timestamp.timestamp() * 1_000_000)}


def _without_zones(schema: pa.Schema) -> pa.Schema:
    at = pa.timestamp("us")
    types = [pa.int64(), at, pa.struct([("at", at), ("n", pa.int64())]), pa.list_(at)]
    types.append(pa.map_(pa.string(), pa.struct([("at", at)])))
    return pa.schema(list(zip(schema.names, types, strict=True)))


def test_new_columns_and_fields_are_null_in_older_files(lake: Catalog, path: Path) -> None:
    deltasql.mirror_duckdb(lake, path)
    before = pa.schema([("id", pa.int32()), ("s", pa.struct([("a", pa.int32())]))])
    written = create(lake, "grown", before)
    written.append([{"id": 1, "s": {"a": 1}}])
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    after = pa.schema([("id", pa.int32()), ("s", inner), ("more", pa.list_(pa.date32()))])
    rows = [{"id": 1, "s": {"a": 1, "b": None}}]
    written.alter(after, rows=rows)
    assert view_rows(path, "grown") == written.states[-1]
    written.append([{"id": 2, "s": {"a": None, "b": "x"}, "more": []}])
    assert view_rows(path, "grown") == written.states[-1]


def test_table_and_column_names_are_quoted(lake: Catalog, path: Path) -> None:
    schema = pa.schema(
        [("filename", pa.int64()), ("file_row_number", pa.int64()), ("c0", IDS[0].type)]
    )
    for name in ('odd "x" é', "select", "crm.it's", "v1%2E2"):
        create(lake, name, schema).append([{"filename": 1, "file_row_number": 2, "c0": 3}])
    deltasql.mirror_duckdb(lake, path)
    for name in ('"odd ""x"" é"', '"select"', 'crm."it\'s"', '"v1.2"', '"default"."v1.2"'):
        assert elsewhere(path, f"SELECT * FROM {name}") == [(1, 2, 3)]


def test_file_names_are_not_glob_patterns(lake: Catalog, path: Path) -> None:
    written = create(lake, "stars", IDS)
    names = [
        "a*.parquet",
        "a[1].parquet",
        "a?.parquet",
        "b\\.parquet",
        "axx.parquet",
        "a1.parquet",
        "it's.parquet",
    ]
    for number, name in enumerate(names):
        file = written.file(pa.table({"id": [number]}), name=name)
        if number > 1:  # the first two exist without being part of the table
            written.stage([file], [*written.rows, {"id": number}])
    deltasql.mirror_duckdb(lake, path)
    assert view_rows(path, "stars") == written.states[-1]
