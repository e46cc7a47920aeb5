"""The DuckDB engine reads exactly the rows of a version, on disk and in S3."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp, parse_one

from deltasql.engine.base import FILE, ROW
from deltasql.engine.duckdb.engine import DuckDbEngine, own_relation
from deltasql.exceptions import MissingDataFilesError
from deltasql.model.schema.convert import schema_to_arrow
from tests.conftest import new_catalog_uri
from tests.engine.support import live_files, scanned
from tests.mirror.support import open_mirrored
from tests.oracles import tables
from tests.oracles.deletion_vectors import inline_vector
from tests.oracles.fixed_set import CHOSEN
from tests.oracles.states import arrow_rows
from tests.oracles.writing import Written, create, removal
from tests.s3 import new_bucket, options_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """Yield an empty catalog whose tables are on disk or in S3."""
    settings: dict[str, Any] = {"mirror": {"mode": "off"}}
    place = str(tmp_path / "lake")
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        settings["storage"] = {"options": options_for(server)}
        place = f"{new_bucket(server)}/lake"
    for uri in new_catalog_uri("sqlite", tmp_path):
        with open_mirrored(uri, place, **settings) as catalog:
            yield catalog


@pytest.fixture
def engine(lake: Catalog) -> Iterator[DuckDbEngine]:
    with DuckDbEngine(lake.config) as opened:
        yield opened


@pytest.mark.parametrize("make", CHOSEN, ids=lambda make: make.__name__)
def test_scan_returns_the_rows_of_every_version(
    lake: Catalog, engine: DuckDbEngine, make: Callable[[Catalog], list[Written]]
) -> None:
    for written in make(lake):
        for version, state in enumerate(written.states):
            assert scanned(engine, written, version) == state, version


@pytest.mark.parametrize(
    "make",
    [tables.primitives, tables.zoneless, tables.decimals, tables.nested],
    ids=lambda make: make.__name__,
)
def test_scan_returns_the_types_of_the_table(
    lake: Catalog, engine: DuckDbEngine, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    files = live_files(written)
    wanted = schema_to_arrow(files.schema)
    relation = engine.scan(files)
    for found in (engine.collect(relation).schema, engine.stream(relation).schema):
        assert [(f.name, f.type) for f in found] == [(f.name, f.type) for f in wanted]


def test_row_positions_count_deleted_rows(lake: Catalog, engine: DuckDbEngine) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    written = create(lake, "t", IDS, properties=properties)
    adds = [written.file(pa.table({"id": pa.array(range(n, n + 4))})) for n in (0, 10)]
    written.stage(adds, [{"id": n + i} for n in (0, 10) for i in range(4)])
    some = replace(adds[1], deletion_vector=inline_vector([0, 2]))
    written.stage([removal(adds[1]), some], [{"id": n} for n in (0, 1, 2, 3, 11, 13)])
    files = live_files(written)
    rows = engine.collect(engine.scan(files, positions=True))
    assert rows.column_names == ["id", FILE, ROW]
    found = {row["id"]: (files.files[row[FILE]].path, row[ROW]) for row in rows.to_pylist()}
    first, second = adds[0].path, adds[1].path
    assert found == {
        **{n: (first, n) for n in range(4)},
        11: (second, 1),
        13: (second, 3),
    }


def test_each_file_is_read_with_its_own_vector_and_partition_values(tmp_path: Path) -> None:
    rows = pa.table({"id": range(40), "part": [n // 10 for n in range(40)]})
    properties = {"delta.enableDeletionVectors": "true"}
    with (
        open_mirrored(f"deltasql://sqlite/{tmp_path}/catalog.db", str(tmp_path / "lake")) as opened,
        DuckDbEngine(opened.config) as engine,
    ):
        written = create(opened, "t", rows.schema, partition_by=["part"], properties=properties)
        with opened.begin() as tx:
            tx.write("t", rows)
        with opened.begin() as tx:
            tx.delete("t", "id IN (12, 31, 38)")
        files = live_files(written)
        scan = engine.scan(files, positions=True)
        found = engine.collect(scan).to_pylist()
    assert "filename" not in own_relation(scan).sql  # DuckDB joins strings more slowly than numbers
    left = [n for n in range(40) if n not in (12, 31, 38)]
    assert sorted((row["id"], row["part"], row[ROW]) for row in found) == [
        (n, n // 10, n % 10) for n in left
    ]
    partitions = {(files.files[row[FILE]].partition, row["part"]) for row in found}
    assert partitions == {(f'{{"part":"{n}"}}', n) for n in range(4)}


def test_nan_is_greater_than_every_number_in_files_and_arrow(
    lake: Catalog, engine: DuckDbEngine
) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "x": [1.0, math.nan, 3.0, -0.0]})
    written = create(lake, "t", rows.schema)
    written.stage([written.file(rows)], rows.to_pylist())
    above = exp.select("id").from_("t").where("x > 1")
    for relation in (
        engine.scan(live_files(written)),
        engine.rows(rows),
        engine.rows(rows.to_reader()),
    ):
        found = engine.collect(engine.query(above, t=relation))
        assert sorted(found["id"].to_pylist()) == [2, 3]
        same = {row["id"]: row["x"] for row in engine.collect(relation).to_pylist()}
        assert math.copysign(1, same[4]) == -1
        assert math.isnan(same[2])


def test_table_without_files_has_its_columns(lake: Catalog, engine: DuckDbEngine) -> None:
    written = create(lake, "t", pa.schema([("id", pa.int32()), ("at", pa.list_(pa.date32()))]))
    rows = engine.collect(engine.scan(live_files(written), positions=True))
    assert rows.num_rows == 0
    assert rows.schema.field("at").type == pa.list_(pa.field("element", pa.date32()))
    assert rows.column_names[-2:] == [FILE, ROW]


def test_columns_can_have_the_names_that_duckdb_adds(lake: Catalog, engine: DuckDbEngine) -> None:
    names = ("filename", "file_row_number", "file_index", "p", "r", "c0")
    schema = pa.schema([(name, pa.int64()) for name in names])
    written = create(lake, "t", schema, partition_by=["r"])
    written.append([{name: number for number, name in enumerate(names)}])
    assert scanned(engine, written) == written.states[-1]


def test_int96_and_zoneless_timestamps_in_files_are_utc(
    lake: Catalog, engine: DuckDbEngine
) -> None:
    when = [datetime(2024, 2, 29, 1, 2, 3, 456789), datetime(1700, 1, 1), None]
    inner = pa.struct([("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("in", pa.list_(inner))])
    written = create(lake, "t", schema)
    naive = pa.array(when, pa.timestamp("us"))
    nested = pa.array([[{"at": each}] for each in when], pa.list_(pa.struct([("at", naive.type)])))
    rows = [
        {"at": each and each.replace(tzinfo=UTC), "in": [{"at": each and each.replace(tzinfo=UTC)}]}
        for each in when
    ]
    for number, options in enumerate(
        ({"use_deprecated_int96_timestamps": True}, {"coerce_timestamps": "us"})
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"at": naive, "in": nested}), sink, **options)
        add = written.file(pa.table({"id": [1]}), name=f"{number}.parquet")
        written.put(f"{number}.parquet", sink.getvalue().to_pybytes())
        written.stage([add], [*written.rows, *rows])
    assert scanned(engine, written) == written.states[-1]


def test_widened_columns_are_read_with_their_new_type(lake: Catalog, engine: DuckDbEngine) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    wide = pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.float64()),
            ("c", pa.decimal128(12, 3)),
            ("d", pa.timestamp("us")),
        ]
    )
    written = create(lake, "t", wide, properties=properties)
    narrow = pa.table(
        {
            "a": pa.array([1, None], pa.int8()),
            "b": pa.array([1.5, None], pa.float32()),
            "c": pa.array([1, None], pa.int32()).cast(pa.decimal128(10, 0)),
            "d": pa.array([1, None], pa.int32()).cast(pa.date32()),
        }
    )
    row = narrow.cast(wide).to_pylist()[0]
    written.stage([written.file(narrow)], [row, {}])
    assert scanned(engine, written) == written.states[-1]


def test_special_characters_in_file_names_are_literal(lake: Catalog, engine: DuckDbEngine) -> None:
    written = create(lake, "t", IDS)
    names = ["a*.parquet", "a1.parquet", "[x]?.parquet", "x 100%.parquet", "d*r/{a,b}.parquet"]
    for number, name in enumerate(names):
        add = written.file(pa.table({"id": pa.array([number], pa.int64())}), name=name)
        written.stage([add], [*written.rows, {"id": number}])
    assert scanned(engine, written) == written.states[-1]


def test_missing_file_error_names_the_file(lake: Catalog, engine: DuckDbEngine) -> None:
    written = create(lake, "t", IDS)
    add = written.file(pa.table({"id": pa.array([1], pa.int64())}), name="gone.parquet")
    written.stage([replace(add, path="lost.parquet")], [{"id": 1}])
    for read in (engine.collect, engine.keep, lambda rows: engine.stream(rows).read_all()):
        with pytest.raises(MissingDataFilesError, match=r"lost\.parquet"):
            read(engine.scan(live_files(written)))


def test_query_on_a_scan_can_use_any_columns(lake: Catalog, engine: DuckDbEngine) -> None:
    [written] = tables.nested(lake)
    scan = engine.scan(live_files(written), positions=True)
    expected = {
        row["id"]: row for row in engine.collect(engine.scan(live_files(written))).to_pylist()
    }
    for name in ("point", "tags", "counts", "path", "deep", "grid"):
        found = engine.query(parse_one(f"SELECT id, t.{name} FROM t", dialect="duckdb"), t=scan)
        for row in engine.collect(found).to_pylist():
            assert row[name] == expected[row["id"]][name], name
    for text, wanted in (
        ("SELECT count(*) AS n FROM t", [{"n": 5}]),
        ("SELECT sum(t.ID)::BIGINT AS n FROM t WHERE t.point IS NOT NULL", [{"n": 3}]),
        (f"SELECT max({ROW}) AS n, max({FILE}) AS f FROM t", [{"n": 2, "f": 1}]),
        (
            "SELECT t.point.tag AS tag, t.deep.a.b[1] AS b FROM t WHERE id = 2",
            [{"tag": None, "b": None}],
        ),
        ("SELECT id FROM t WHERE t.counts['k'] = 1 AND len(t.grid) = 3", [{"id": 1}]),
        ("SELECT u.id FROM t AS u JOIN t USING (id) WHERE t.id = 4", [{"id": 4}]),
    ):
        result = engine.query(parse_one(text, dialect="duckdb"), t=scan)
        assert engine.collect(result).to_pylist() == wanted


def test_files_on_disk_and_in_s3_are_read_together(
    lake: Catalog, engine: DuckDbEngine, tmp_path: Path
) -> None:
    written = create(lake, "t", IDS)
    written.append([{"id": 1}])
    pq.write_table(pa.table({"id": pa.array([2], pa.int64())}), tmp_path / "elsewhere.parquet")
    add = written.file(pa.table({"id": [0]}), name="unused.parquet")
    path = (tmp_path / "elsewhere.parquet").as_uri()
    written.stage([replace(add, path=path)], [*written.rows, {"id": 2}])
    assert scanned(engine, written) == written.states[-1]
    rows = engine.collect(engine.scan(live_files(written), positions=True)).to_pylist()
    paths = [file.path for file in live_files(written).files]
    assert {row["id"] for row in rows if paths[row[FILE]] == path} == {2}


def test_scan_can_be_read_again(lake: Catalog, engine: DuckDbEngine) -> None:
    [written] = tables.typed_partitions(lake)
    scan = engine.scan(live_files(written))
    for _ in range(2):
        assert arrow_rows(engine.stream(scan).read_all()) == written.states[-1]
