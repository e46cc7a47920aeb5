"""SQL predicates for data skipping: deltalake accepts fewer forms than for filtering rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.predicates.parser import DataFusionDialect
from deltasql.operations.sql.expressions import scalar

if TYPE_CHECKING:
    from deltasql.model.schema.schema import StructType

_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo)
_OPERATORS = (exp.DPipe, exp.Mod, exp.Neg, exp.Tuple)
# SQL syntax that sqlglot represents as functions.
_NO_FUNCTIONS = (exp.Connector, exp.Cast, exp.Case, exp.If)


def pruning_condition(text: str, schema: StructType) -> exp.Expr:
    """Parse a predicate for data skipping; refuse the forms that deltalake refuses."""
    condition = scalar(text, schema)
    for node in condition.walk():
        if _is_refused(node):
            raise TxnLogSchemaError(
                f'Cannot use predicate "{text}" for file skipping: Error during planning: '
                f"Cannot convert to kernel expression: {node.sql(dialect=DataFusionDialect)}. "
                "Supported are column comparisons, IS [NOT] NULL, [NOT] IN, [NOT] BETWEEN, NOT, "
                "AND and OR.",
                prefix=TABLE_ERROR,
                help="Choose files by comparisons, and filter the rows after reading.",
            )
    return condition


def _is_refused(node: exp.Expr) -> bool:
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Boolean)
    if isinstance(node, _PATTERNS):
        return True
    is_function = isinstance(node, exp.Func) and not isinstance(node, _NO_FUNCTIONS)
    # An expression without columns is a constant.
    computes = is_function or isinstance(node, _OPERATORS)
    return computes and node.find(exp.Column) is not None
