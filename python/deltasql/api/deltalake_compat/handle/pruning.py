"""Predicates for data skipping. deltalake accepts fewer expressions in them than in row filters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.exceptions import TxnLogProtocolError, TxnLogSchemaError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.predicates.filters import filters_to_condition
from deltasql.model.predicates.parser import DataFusionDialect
from deltasql.model.predicates.query_conditions import plain_condition
from deltasql.model.schema.schema import StructField, StructType, type_name
from deltasql.operations.sql.expressions import scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.snapshot.snapshot import Snapshot

_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo)
_OPERATORS = (exp.DPipe, exp.Mod, exp.Neg, exp.Tuple)
# sqlglot represents this SQL syntax as functions, although it is not a function call.
_NO_FUNCTIONS = (exp.Connector, exp.Cast, exp.Case, exp.If)


def checked_pruning(
    predicate: str | Sequence[Any] | exp.Expr, snapshot: Snapshot
) -> str | Sequence[Any] | exp.Expr:
    """Return a predicate that is parsed by the same rules as in `delete` and `update`.

    Raises an error for a predicate or value that deltalake does not accept for data skipping.
    """
    if isinstance(predicate, str):
        return _parsed(predicate, snapshot.schema)
    _check_partition_values(predicate, snapshot.schema, snapshot.partition_columns)
    return predicate


def pruning_of(filters: object, snapshot: Snapshot) -> str | None:
    """Return the part of the filters that can be used for data skipping, or None."""
    if not isinstance(filters, list | tuple) or not filters:
        return None
    try:
        condition = filters_to_condition(filters, snapshot.schema, snapshot.partition_columns)
    except TxnLogSchemaError:
        return None  # pyarrow raises the error
    # `null NOT IN (...)` is true in pyarrow and null in SQL, so data skipping would lose rows.
    known = plain_condition(condition, snapshot.schema)
    if known is None or any(isinstance(each.this, exp.In) for each in known.find_all(exp.Not)):
        return None
    return known.sql(dialect=DataFusionDialect)


def check_columns(filters: Any, known: Sequence[str]) -> None:
    """Raise ValueError if filters use columns that the table does not have.

    >>> check_columns([("zz", "=", "1")], ["id"])
    Traceback (most recent call last):
    ValueError: Filters include columns that are not in table schema: ["zz"]
    """
    if isinstance(filters, str) or not filters:
        return
    groups = [filters] if isinstance(filters[0][0], str) else filters
    named = [each[0] for group in groups for each in group]
    unknown = [name for name in named if name not in known]
    if unknown:
        shown = json.dumps(unknown, ensure_ascii=False)
        raise ValueError(f"Filters include columns that are not in table schema: {shown}")


def _parsed(text: str, schema: StructType) -> exp.Expr:
    condition = scalar(text, schema)
    for node in condition.walk():
        if _is_unsupported(node):
            raise TxnLogSchemaError(
                f'Cannot use predicate "{text}" for file skipping: Error during planning: '
                f"Cannot convert to kernel expression: {node.sql(dialect=DataFusionDialect)}. "
                "Supported are column comparisons, IS [NOT] NULL, [NOT] IN, [NOT] BETWEEN, NOT, "
                "AND and OR.",
                prefix=TABLE_ERROR,
                help="Select files with comparisons only, and filter the rows after reading.",
            )
    return condition


def _is_unsupported(node: exp.Expr) -> bool:
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Boolean)
    if isinstance(node, _PATTERNS):
        return True
    is_function = isinstance(node, exp.Func) and not isinstance(node, _NO_FUNCTIONS)
    # An expression without columns is a constant, which is allowed.
    computes = is_function or isinstance(node, _OPERATORS)
    return computes and node.find(exp.Column) is not None


def _check_partition_values(
    filters: Any, schema: StructType, partition_columns: Sequence[str]
) -> None:
    """Raise TxnLogSchemaError if a value does not have the type of its partition column."""
    if not isinstance(filters, list | tuple) or not filters:
        return
    groups = [filters] if filters[0] and isinstance(filters[0][0], str) else filters
    for entry in (each for group in groups for each in group):
        found = schema.find(entry[0]) if entry and entry[0] in partition_columns else None
        if found is None or len(entry) != 3:
            continue
        value = entry[2]
        for each in value if isinstance(value, list | tuple | set | frozenset) else (value,):
            _check_partition_value(each, found)


def _check_partition_value(value: Any, column: StructField) -> None:
    if value is None:
        return
    try:
        parse_partition_value(str(value), column.type)
    except TxnLogProtocolError as error:
        raise TxnLogSchemaError(
            f"Failed to parse value '{value}' as '{type_name(column.type)}'",
            column=column.name,
            help="Give a value of the partition column's type, or the value as a string.",
        ) from error
