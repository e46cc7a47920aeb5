"""Choose the engine: the one that the data belongs to, else the configured one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.engine.base import Engine


def is_spark_frame(data: object) -> bool:
    """Return whether data is a Spark DataFrame, classic or Connect, without importing pyspark."""
    return type(data).__module__.startswith("pyspark.") and hasattr(data, "sparkSession")


def is_rows(data: object) -> bool:
    """Return whether data holds rows, and not actions of the log."""
    if isinstance(data, list | tuple):
        return bool(data) and is_rows(data[0])
    interfaces = ("__arrow_c_stream__", "__arrow_c_array__", "to_arrow_reader")
    return is_spark_frame(data) or any(hasattr(data, name) for name in interfaces)


def open_engine(config: Config, *, data: object = None, name: str | None = None) -> Engine:
    """Return an engine for `with`; it opens its resources when it needs them.

    `name` (`duckdb` or `spark`) takes precedence over the engine of the data.
    """
    chosen = name or ("spark" if is_spark_frame(data) else config.engine.default)
    if chosen in ("auto", "duckdb"):
        from deltasql.engine.duckdb.engine import DuckDbEngine

        return DuckDbEngine(config)
    if chosen == "spark":
        from deltasql.engine.spark.engine import SparkEngine

        session = cast("Any", data).sparkSession if is_spark_frame(data) else None
        return SparkEngine(config, session)
    raise TxnLogEngineError(
        f"there is no engine called {chosen!r}", engine=chosen, help="Use 'duckdb' or 'spark'."
    )
