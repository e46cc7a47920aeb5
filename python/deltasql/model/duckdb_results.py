"""Results of DuckDB as Arrow data, for every supported release of DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_table(result: Any) -> pa.Table:
    """Return all rows of a result."""
    if hasattr(result, "to_arrow_table"):
        return result.to_arrow_table()
    return result.fetch_arrow_table()  # DuckDB 1.4; deprecated in 1.5


def arrow_reader(result: Any, batch_rows: int) -> pa.RecordBatchReader:
    """Return the rows of a result in batches; raise if a column has DuckDB's type VARIANT."""
    import duckdb  # lazy import: DuckDB is optional

    try:
        return _reader(result, batch_rows)
    except (duckdb.Error, OSError) as error:  # pyarrow raises OSError for an error of DuckDB
        names = [name for name, kind, *_ in result.description if "VARIANT" in str(kind)]
        if not names:
            raise
        raise UnsupportedFeatureError(
            f"column {names[0]!r} is a computed variant, but the embedded engine can only copy "
            "variants",
            features=("variantType",),
            help="Run the statement with deltasql.spark.sql, or cast the value to another type.",
        ) from error


def _reader(result: Any, batch_rows: int) -> pa.RecordBatchReader:
    if hasattr(result, "to_arrow_reader"):
        return result.to_arrow_reader(batch_rows)
    return result.fetch_record_batch(batch_rows)  # DuckDB 1.4; deprecated in 1.5
