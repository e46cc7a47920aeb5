"""What `delta.tables` of delta-spark offers, under the same names: only the import changes."""

from deltasql.spark.builder import DeltaTableBuilder, IdentityGenerator
from deltasql.spark.delta_table import DeltaTable
from deltasql.spark.merge import DeltaMergeBuilder
from deltasql.spark.optimize import DeltaOptimizeBuilder

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
