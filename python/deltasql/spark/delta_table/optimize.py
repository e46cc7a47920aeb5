"""OPTIMIZE with the builder API of delta-spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.model.clock import now_ms
from deltasql.model.clustering import column_names
from deltasql.model.predicates.parser import Scope, parse_expression
from deltasql.operations.optimize.compaction import stage_bins
from deltasql.operations.optimize.optimize import plan_optimize
from deltasql.operations.optimize.zorder import plan_z_order
from deltasql.spark.delta_table.arguments import text_list
from deltasql.spark.exceptions import analysis_error, argument_error, as_spark_exceptions
from deltasql.spark.session import spark_location
from deltasql.storage.location import root_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.model.progress import OnProgress
    from deltasql.operations.optimize.compaction import Compaction
    from deltasql.operations.optimize.optimize import Rewrite
    from deltasql.operations.table_stage import TableStage

_FILES = "struct<min:bigint,max:bigint,avg:double,totalFiles:bigint,totalSize:bigint>"
_COUNTED = "struct<num:bigint,size:bigint>"
_NUMBERED = "struct<numFiles:bigint,size:bigint>"
_RESULT = (
    "path string, metrics struct<numFilesAdded:bigint,numFilesRemoved:bigint,"
    f"filesAdded:{_FILES},filesRemoved:{_FILES},partitionsOptimized:bigint,"
    f"zOrderStats:struct<strategyName:string,inputCubeFiles:{_COUNTED},"
    f"inputOtherFiles:{_COUNTED},inputNumCubes:bigint,mergedFiles:{_COUNTED},"
    "numOutputCubes:bigint,mergedNumCubes:bigint>,"
    f"clusteringStats:struct<inputZCubeFiles:{_NUMBERED},inputOtherFiles:{_NUMBERED},"
    f"inputNumZCubes:bigint,mergedFiles:{_NUMBERED},numOutputZCubes:bigint>,"
    "numBins:bigint,numBatches:bigint,totalConsideredFiles:bigint,totalFilesSkipped:bigint,"
    "preserveInsertionOrder:boolean,numFilesSkippedToReduceWriteAmplification:bigint,"
    "numBytesSkippedToReduceWriteAmplification:bigint,startTimeMs:bigint,endTimeMs:bigint,"
    "totalClusterParallelism:bigint,totalScheduledTasks:bigint,"
    "autoCompactParallelismStats:struct<maxClusterActiveParallelism:bigint,"
    "minClusterActiveParallelism:bigint,maxSessionActiveParallelism:bigint,"
    "minSessionActiveParallelism:bigint>,"
    "deletionVectorStats:struct<numDeletionVectorsRemoved:bigint,"
    "numDeletionVectorRowsRemoved:bigint>,numTableColumns:bigint,numTableColumnsWithStats:bigint>"
)


class DeltaOptimizeBuilder:
    """Compacts or sorts the files of selected partitions; each `execute…` call is one commit."""

    def __init__(
        self,
        spark: SparkSession,
        operate: Callable[[Callable[[TableStage], Any]], Any],
        on_progress: OnProgress | None,
    ) -> None:
        self._spark, self._operate, self._on_progress = spark, operate, on_progress
        self._filter: str | None = None

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Select the partitions for which a condition is true."""
        if not isinstance(partitionFilter, str):
            raise TypeError(
                f"partitionFilter must be a string, found to be of type {type(partitionFilter)}"
            )
        both = f"({self._filter}) AND ({partitionFilter})"
        self._filter = partitionFilter if self._filter is None else both
        return self

    def executeCompaction(self) -> DataFrame:
        """Compact small files, or cluster the files of a clustered table; returns metrics."""
        return self._run([])

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Sort rows by the Z-order of columns, so that a file has similar rows; returns metrics."""
        return self._run(text_list(cols, "Z-order column must be str."))

    @as_spark_exceptions()
    def _run(self, columns: list[str]) -> DataFrame:
        began_ms = now_ms()

        def stage(target: TableStage) -> tuple[Any, ...]:
            plan, rewrite = self._planned(target, columns)
            stage_bins(target, plan, rewrite=rewrite, on_progress=self._on_progress)
            _record_parameters(target, plan, columns, self._filter)
            return _row(target, plan, bool(columns), began_ms)

        return self._spark.createDataFrame([self._operate(stage)], _RESULT)

    def _planned(self, target: TableStage, columns: list[str]) -> tuple[Compaction, Rewrite | None]:
        filters = self._checked(target)
        if not columns:
            return plan_optimize(target, partition_filters=filters)
        _check_order(target, columns)
        return plan_z_order(target, columns, partition_filters=filters)

    def _checked(self, target: TableStage) -> Any:
        if self._filter is None:
            return None
        predicate = target.predicate(self._filter)
        if not predicate.partition_only:
            known = target.metadata.partition_columns
            named = [".".join(column.path) for column in predicate.columns]
            other = next((name for name in named if name not in known), ", ".join(named))
            raise analysis_error(
                f"Predicate references non-partition column '{other}'. Only the partition columns "
                f"may be referenced: [{', '.join(known)}]",
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                help="Leave out the condition, or name only columns that the table is "
                "partitioned by.",
            )
        return self._filter


def _check_order(target: TableStage, columns: list[str]) -> None:
    """Raise delta-spark's error if the table cannot be Z-ordered by these columns."""
    if target.clustered_by():
        raise analysis_error(
            f"OPTIMIZE of a table that is clustered by ({', '.join(_clustered(target))}) does not "
            "accept ZORDER BY",
            "DELTA_CLUSTERING_WITH_ZORDER_BY",
            help="Call executeCompaction(): it clusters the files that are not clustered yet.",
        )
    scope = Scope.of(target.schema)
    for name in columns:
        if name in target.partition_columns:
            raise argument_error(
                f"{name} is a partition column. Z-Ordering can only be performed on data columns",
                "DELTA_ZORDERING_ON_PARTITION_COLUMN",
                help="Leave it out: all rows of a partition have the same value.",
            )
        if scope.find([name]) is None and scope.find(name.split(".")) is None:
            raise argument_error(
                f"Z-Ordering column {name} does not exist in data schema.",
                "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
                help=f"The table has: {', '.join(target.schema.names)}.",
            )


def _clustered(target: TableStage) -> list[str]:
    return column_names(target.clustered_by(), target.metadata)


def _record_parameters(
    target: TableStage, plan: Compaction, columns: list[str], chosen: str | None
) -> None:
    """Add the operation parameters that delta-spark's history has."""
    info = target.staged.info
    if not plan.rewritten or info.operation != "OPTIMIZE":
        return
    parameters = {
        **(info.operation_parameters or {}),
        "predicate": json.dumps([] if chosen is None else [_shown(chosen)], ensure_ascii=False),
        "zOrderBy": json.dumps(columns, ensure_ascii=False),
        "clusterBy": json.dumps(_clustered(target), ensure_ascii=False),
        "auto": "false",
    }
    target.set_commit_info("OPTIMIZE", parameters, info.operation_metrics)


def _shown(condition: str) -> str:
    """Return a condition as Spark's plans show it.

    >>> _shown("key = 'a'")
    "('key = a)"
    """
    tree = parse_expression(condition, escapes=True)
    if not isinstance(tree, exp.Binary) or not isinstance(tree.expression, exp.Literal):
        return condition
    if not isinstance(tree.this, exp.Column):
        return condition
    value = tree.expression.this
    tree.set("expression", exp.to_identifier("x"))
    sign = tree.sql(dialect="spark").removeprefix(tree.this.sql(dialect="spark"))
    return f"('{tree.this.name}{sign.removesuffix('x')}{value})"


def _row(target: TableStage, plan: Compaction, is_z_order: bool, began_ms: int) -> tuple[Any, ...]:
    metrics, zero = plan.metrics(), (0, 0)
    removed = (len(plan.removed), sum(plan.removed))
    z_order = ("all", zero, removed, 0, removed, plan.partitions, None) if is_z_order else None
    clustered = (zero, removed, 0, removed, 1) if plan.rewritten and target.clustered_by() else None
    width = len(target.schema.fields)
    figures = (
        metrics["numFilesAdded"],
        metrics["numFilesRemoved"],
        _sizes(plan.added),
        _sizes(plan.removed),
        plan.partitions,
        z_order,
        clustered,
        len(plan.rewritten),
        1,
        metrics["totalConsideredFiles"],
        metrics["totalFilesSkipped"],
        metrics["preserveInsertionOrder"],
        0,
        0,
        began_ms,
        now_ms(),
        0,
        0,
        None,
        None,
        width,
        width,
    )
    return spark_location(root_address(target.location)), figures


def _sizes(sizes: list[int]) -> tuple[Any, ...]:
    if not sizes:
        return (None, None, 0.0, 0, 0)
    return (min(sizes), max(sizes), sum(sizes) / len(sizes), len(sizes), sum(sizes))
