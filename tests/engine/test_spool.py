"""Rows that are set aside come back as they were."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from deltasql.config import Config
from deltasql.engine.base import FILE, ROW
from deltasql.engine.duckdb import DuckDbEngine
from deltasql.engine.duckdb_order import in_order_by_files
from deltasql.engine.spool import spooled
from deltasql.exceptions import TxnLogEngineError

NUMBERS = pa.table({"n": pa.array(range(400_000), pa.int64()), "s": ["x"] * 400_000})
"""More than is held in memory."""


@pytest.mark.parametrize("rows", [0, 10, NUMBERS.num_rows])
def test_rows_come_back_whether_few_or_many(rows: int) -> None:
    given = NUMBERS.slice(0, rows)
    reader, are_few = spooled(given.to_reader(max_chunksize=16_384))
    assert are_few == (rows < NUMBERS.num_rows)
    assert reader.read_all().equals(given)


def test_without_a_folder_for_temporary_files_many_rows_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(TxnLogEngineError, match="temporary file") as caught:
        spooled(NUMBERS.to_reader(max_chunksize=16_384))
    assert "TMPDIR" in str(caught.value)


def test_changes_of_many_files_come_in_the_order_of_files_and_rows() -> None:
    places = range(100_000)
    mixed = pa.table(
        {
            FILE: pa.array([place % 7 * 2 for place in places], pa.int64()),
            ROW: pa.array([100_000 - place for place in places], pa.int64()),
            "v": pa.array(places, pa.int64()),
        }
    )
    with DuckDbEngine(Config()) as engine:
        found = in_order_by_files(engine, engine.rows(mixed)).read_all()
    wanted = mixed.sort_by([(FILE, "ascending"), (ROW, "ascending")])
    assert found.select(mixed.column_names).equals(wanted)
