"""The classes of delta-spark's `delta.tables`, with the same names: only the import changes."""

from deltasql.spark.delta_table.builder import DeltaTableBuilder, IdentityGenerator
from deltasql.spark.delta_table.delta_table import DeltaTable
from deltasql.spark.delta_table.merge import DeltaMergeBuilder
from deltasql.spark.delta_table.optimize import DeltaOptimizeBuilder

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
