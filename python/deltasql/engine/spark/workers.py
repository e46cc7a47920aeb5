"""Run Python functions on local workers with the driver's Python, where deltasql is installed.

Without PYSPARK_PYTHON, Spark starts workers with the first `python3` on the path, which may lack
deltasql. The path of the driver's Python is set in the function that is sent to the workers. The
session and the environment are not changed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_DEFAULT = "python3"
"""The Python of workers in a Spark context for which nobody chose one."""


def has_local_workers(spark: SparkSession) -> bool:
    """Return whether the workers of a session run on this machine."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def has_chosen_python(spark: SparkSession) -> bool:
    """Return whether the Python of the workers was chosen by the user or by a Connect server."""
    if is_connect(spark) or "PYSPARK_PYTHON" in os.environ:
        return True
    return bool(spark.sparkContext.pythonExec != _DEFAULT)


def with_this_python(context: Any, function: Any) -> Any:
    """Return a copy of the JVM object of a Python function that makes workers use this Python."""
    return context._jvm.SimplePythonFunction(
        function.command(),
        function.envVars(),
        function.pythonIncludes(),
        sys.executable,
        function.pythonVer(),
        function.broadcastVars(),
        function.accumulator(),
    )


def map_in_arrow(frame: DataFrame, function: Batches, schema: str) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`, run with the driver's Python if possible."""
    spark = frame.sparkSession
    if has_chosen_python(spark) or not has_local_workers(spark):
        return frame.mapInArrow(function, schema)
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.util import PythonEvalType

    # Do the same as `DataFrame.mapInArrow`, but set the path of another Python in the function.
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    made: Any = pandas_udf(function, returnType=schema, functionType=kind)._unwrapped  # type: ignore[call-overload]
    context: Any = spark.sparkContext
    sent = made._judf
    functions = context._jvm.org.apache.spark.sql.execution.python
    made._judf_placeholder = functions.UserDefinedPythonFunction(
        sent.name(),
        with_this_python(context, sent.func()),
        sent.dataType(),
        sent.pythonEvalType(),
        sent.udfDeterministic(),
    )
    column = made(*[frame[name] for name in frame.columns])
    jvm_frame: Any = frame._jdf
    return DataFrame(jvm_frame.mapInArrow(column._jc, False, None), spark)
