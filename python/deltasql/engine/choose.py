"""Choose the engine: Spark if the data is a Spark DataFrame, otherwise the configured engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deltasql.engine.inputs import is_spark_frame
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.engine.base import Engine


def open_engine(config: Config, *, data: object = None, name: str | None = None) -> Engine:
    """Return an engine, to be used as a context manager. It opens resources on first use.

    The engine is `name` (`duckdb` or `spark`), Spark for a Spark DataFrame in `data`, or the
    configured engine, in this order.
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
