"""Results of DuckDB as Arrow data, for every supported release of DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_table(result: Any) -> pa.Table:
    """Return all rows of a result."""
    if hasattr(result, "to_arrow_table"):
        return result.to_arrow_table()
    return result.fetch_arrow_table()  # DuckDB 1.4; deprecated in 1.5


def arrow_reader(result: Any, batch_rows: int) -> pa.RecordBatchReader:
    """Return the rows of a result in batches."""
    if hasattr(result, "to_arrow_reader"):
        return result.to_arrow_reader(batch_rows)
    return result.fetch_record_batch(batch_rows)  # DuckDB 1.4; deprecated in 1.5
