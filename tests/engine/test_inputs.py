"""Every Arrow-compatible object is accepted as input and can be read repeatedly."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import arro3.core
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from sqlglot import parse_one

from deltasql.config import Config
from deltasql.engine.duckdb.connection import close_idle
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.inputs import batches
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})
WANTED = ROWS.to_pylist()


class OldFrame(pd.DataFrame):
    """A pandas data frame without the Arrow C stream interface."""

    @property
    def _constructor(self) -> type[OldFrame]:
        return OldFrame

    def __getattribute__(self, name: str) -> Any:
        if name == "__arrow_c_stream__":
            raise AttributeError(name)
        return super().__getattribute__(name)


class OnlyArray:
    """Implements only the Arrow C array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return ROWS.combine_chunks().to_batches()[0].__arrow_c_array__(requested_schema)


class OnlyStream:
    """Implements only the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return ROWS.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[], object]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": ROWS.to_reader,
    "dataset": lambda: ds.dataset(ROWS),
    "scanner": lambda: ds.dataset(ROWS).scanner(),
    "batches": lambda: ROWS.to_batches(max_chunksize=1),
    "tables": lambda: (ROWS.slice(0, 1), ROWS.slice(1)),
    "array": OnlyArray,
    "arrays": lambda: [OnlyArray()],
    "stream": OnlyStream,
    "pandas": ROWS.to_pandas,
    "old pandas": lambda: OldFrame(ROWS.to_pandas()),
    "polars": lambda: pl.from_arrow(ROWS),
    "lazy polars": lambda: pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
    "arro3 table": lambda: arro3.core.Table.from_arrow(ROWS),
    "arro3 batch": lambda: arro3.core.RecordBatch.from_arrow(ROWS.to_batches()[0]),
    "arro3 reader": lambda: arro3.core.RecordBatchReader.from_arrow(ROWS),
    "duckdb": lambda: duckdb.connect().from_arrow(ROWS),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    with DuckDbEngine(Config()) as opened:
        yield opened


@pytest.mark.parametrize("form", FORMS)
def test_every_input_form_is_read(form: str) -> None:
    assert batches(FORMS[form]()).read_all().to_pylist() == WANTED


@pytest.mark.parametrize("form", FORMS)
def test_engine_rows_can_be_read_again(engine: DuckDbEngine, form: str) -> None:
    relation = engine.rows(FORMS[form]())
    assert relation.columns == ("id", "name")
    for _ in range(2):
        assert engine.collect(relation).to_pylist() == WANTED
        assert engine.stream(relation).read_all().to_pylist() == WANTED


@pytest.mark.parametrize(
    "wrong", [None, 1, "x", [], [1], [{"id": 1}], object()], ids=lambda each: type(each).__name__
)
def test_object_without_rows_is_rejected_as_input(engine: DuckDbEngine, wrong: object) -> None:
    for read in (batches, engine.rows):
        with pytest.raises(TxnLogEngineError, match="cannot read rows from"):
            read(wrong)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b" * 30], pa.string_view()),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array([[1], None, []], pa.large_list(pa.int64())),
        pa.array([[1], None, []], pa.list_view(pa.int64())),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        pa.array([1, None, 2], pa.timestamp("s", "Asia/Tokyo")),
        pa.array([None, None, None]),
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        pa.array([{"a": {"b": 1}}, None, {"a": None}]),
    ],
    ids=lambda column: str(column.type),
)
def test_all_arrow_layouts_are_read(engine: DuckDbEngine, column: pa.Array) -> None:
    table = pa.table({"v": column})
    assert engine.collect(engine.rows(table))["v"].to_pylist() == column.to_pylist()
    kept = engine.rows(table.to_reader())
    assert engine.collect(kept)["v"].to_pylist() == column.to_pylist()


def test_query_uses_relations_by_keyword(engine: DuckDbEngine) -> None:
    left, right = engine.rows(ROWS), engine.rows(ROWS.slice(1).to_reader())
    query = parse_one(
        "WITH both AS (SELECT source.id FROM target JOIN source ON source.id = target.id) "
        "SELECT sum(id)::INT AS total, (SELECT count(*) FROM target AS t) AS n FROM both",
        dialect="duckdb",
    )
    result = engine.query(query, target=left, source=right)
    assert result.columns == ("total", "n")
    assert engine.collect(result).to_pylist() == [{"total": 5, "n": 3}]
    again = engine.query(parse_one("SELECT total + 1 AS more FROM result"), result=result)
    assert engine.collect(again).to_pylist() == [{"more": 6}]


def test_materialized_rows_are_computed_once(engine: DuckDbEngine) -> None:
    query = parse_one("SELECT id, random() AS r FROM t", dialect="duckdb")
    kept = engine.keep(engine.query(query, t=engine.rows(ROWS)))
    assert engine.collect(kept).equals(engine.collect(kept))


def test_stream_survives_other_reads(engine: DuckDbEngine) -> None:
    many = engine.query(parse_one("SELECT * FROM range(1000000) AS r(n)", dialect="duckdb"))
    first, second = engine.stream(many), engine.stream(many)
    first.read_next_batch()
    second.read_next_batch()
    assert engine.collect(engine.rows(ROWS)).num_rows == 3
    total = sum(batch.num_rows for reader in (first, second) for batch in reader)
    assert 0 < total < 2_000_000


def test_duckdb_errors_become_engine_errors(engine: DuckDbEngine) -> None:
    wrong = engine.query(parse_one("SELECT CAST(name AS INT) AS n FROM t"), t=engine.rows(ROWS))
    for read in (engine.collect, lambda relation: engine.stream(relation).read_all()):
        with pytest.raises(TxnLogEngineError, match="Could not convert string 'a'") as caught:
            read(wrong)
        assert caught.value.engine == "duckdb"
    with pytest.raises(TxnLogEngineError, match="nowhere"):
        engine.query(parse_one("SELECT * FROM nowhere"))


def test_error_of_an_input_stream_is_raised_unchanged(engine: DuckDbEngine) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise LookupError("the source is gone")

    with pytest.raises(LookupError, match="the source is gone"):
        engine.rows(pa.RecordBatchReader.from_batches(ROWS.schema, broken()))
    assert engine.collect(engine.rows(ROWS.to_reader())).num_rows == 3


def test_unused_relations_are_dropped(engine: DuckDbEngine) -> None:
    known = parse_one(
        "SELECT (SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
        " + (SELECT count(*) FROM duckdb_tables()) AS n",
        dialect="duckdb",
    )
    gc.collect()  # drops relations of other tests in the same DuckDB instance
    counts = [engine.collect(engine.query(known))["n"][0].as_py()]
    for _ in range(3):
        for _ in range(10):
            stream = engine.rows(ROWS.to_reader())
            both = parse_one("SELECT a.id FROM a JOIN b ON a.id = b.id")
            found = engine.keep(engine.query(both, a=engine.rows(ROWS), b=stream))
            assert engine.collect(found).num_rows == 3
        counts.append(engine.collect(engine.query(known))["n"][0].as_py())
    assert max(counts[1:]) < counts[0] + 10


def test_stream_keeps_its_relations_alive(engine: DuckDbEngine) -> None:
    query = parse_one("SELECT n FROM range(300000) AS r(n)", dialect="duckdb")
    kept = engine.keep(engine.query(query))
    stream = engine.stream(engine.query(parse_one("SELECT n + 1 AS n FROM t"), t=kept))
    del kept
    engine.rows(ROWS)
    engine.rows(ROWS)
    assert stream.read_all().num_rows == 300_000


def test_local_variables_are_not_tables(engine: DuckDbEngine) -> None:
    nowhere = ROWS
    with pytest.raises(TxnLogEngineError, match="nowhere"):
        engine.query(parse_one("SELECT * FROM nowhere"))
    assert nowhere is ROWS


def test_closed_engine_leaves_no_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    config = Config(engine={"memory_limit": "200MB", "threads": 1})
    with DuckDbEngine(config) as engine:
        assert list(tmp_path.iterdir()) == []  # DuckDB is opened on first use
        query = parse_one("SELECT * FROM range(10) AS r(n)", dialect="duckdb")
        kept = engine.keep(engine.query(query))
    (folder,) = tmp_path.iterdir()  # the folder of the idle instance, which the next engine reuses
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    tables = parse_one("SELECT count(*) AS n FROM duckdb_tables()", dialect="duckdb")
    with DuckDbEngine(config) as engine:  # the same instance, without the rows
        assert engine.collect(engine.query(tables))["n"].to_pylist() == [0]
    assert kept.columns == ("n",)
    close_idle()
    assert list(tmp_path.iterdir()) == []


def _many(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, 500_000):
        yield pa.record_batch({"n": np.arange(start, start + 500_000)})


@pytest.mark.parametrize("rows", [500_000, 5_000_000])
def test_stream_of_any_size_can_be_read_again_and_numbered(engine: DuckDbEngine, rows: int) -> None:
    schema = pa.schema([("n", pa.int64())])
    relation = engine.rows(pa.RecordBatchReader.from_batches(schema, _many(rows)))
    numbered = engine.numbered(relation, "number")
    del relation
    assert numbered.columns == ("n", "number")
    query = parse_one(
        "SELECT count(*) AS rows, sum(n)::BIGINT AS total, count(DISTINCT number) AS numbers FROM t"
    )
    wanted = {"rows": rows, "total": rows * (rows - 1) // 2, "numbers": rows}
    for _ in range(2):
        assert engine.collect(engine.query(query, t=numbered)).to_pylist() == [wanted]


def test_late_error_of_a_large_stream_is_raised_unchanged(engine: DuckDbEngine) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from _many(5_000_000)
        raise LookupError("the source is gone")

    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(LookupError, match="the source is gone"):
        engine.rows(pa.RecordBatchReader.from_batches(schema, broken()))


def test_nan_in_a_stream_can_be_filtered(engine: DuckDbEngine) -> None:
    values = pa.table({"v": [1.0, float("nan"), None]})
    query = parse_one(
        "SELECT count(*) AS n FROM t WHERE v = 'NaN'::DOUBLE OR v > 5", dialect="duckdb"
    )
    assert (
        engine.collect(engine.query(query, t=engine.rows(values.to_reader())))["n"][0].as_py() == 1
    )


def test_strings_of_every_layout_can_be_filtered(engine: DuckDbEngine) -> None:
    """DuckDB pushes some filters down to Arrow, which cannot filter every layout."""
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        rows = engine.rows(pa.table({"v": pa.array(["a", "b", None], kind)}).to_reader())
        query = parse_one("SELECT v FROM t WHERE v = 'b'")
        assert engine.collect(engine.query(query, t=rows))["v"].to_pylist() == ["b"]
