"""Results of DuckDB as Arrow, with the method names of DuckDB 1.5 or of 1.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def arrow_table(result: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the rows of the last statement as a table."""
    if hasattr(result, "to_arrow_table"):
        return result.to_arrow_table()
    return result.fetch_arrow_table()


def arrow_reader(result: duckdb.DuckDBPyConnection, batch_rows: int) -> pa.RecordBatchReader:
    """Return a reader of the rows of the last statement."""
    if hasattr(result, "to_arrow_reader"):
        return result.to_arrow_reader(batch_rows)
    return result.fetch_record_batch(batch_rows)
