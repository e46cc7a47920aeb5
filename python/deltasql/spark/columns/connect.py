"""Converts Columns of Spark Connect, which are trees of Python objects."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql.connect import expressions as e

from deltasql.engine.spark.schema import name_parts
from deltasql.spark.columns.sql_text import (
    ColumnContext,
    call,
    cannot_write,
    case,
    extracted,
    literal,
    struct,
)

_EPOCH = dt.datetime(1970, 1, 1)


def column_sql(column: Any, context: ColumnContext) -> str:
    """Return the SQL of a Column, without its alias."""
    return expression_sql(column._expr, context)


def expression_sql(node: Any, context: ColumnContext) -> str:
    """Return the SQL of an expression."""
    if isinstance(node, e.ColumnAlias):
        return expression_sql(node._child, context)
    if isinstance(node, e.LiteralExpression):
        return _literal(node)
    if isinstance(node, e.ColumnReference):
        return context.attribute(node._plan_id, name_parts(node._unparsed_identifier))
    if isinstance(node, e.SQLExpression):
        return f"({node._expr})"
    if isinstance(node, e.UnresolvedFunction | e.CallFunction):
        return _function(node, context)
    if isinstance(node, e.CastExpression):
        return _cast(node, context)
    if isinstance(node, e.CaseWhen):
        branches = [
            (expression_sql(condition, context), expression_sql(value, context))
            for condition, value in node._branches
        ]
        last = node._else_value
        return case(branches, None if last is None else expression_sql(last, context))
    if isinstance(node, e.UnresolvedExtractValue):
        key: Any = node._extraction
        value = key._value if isinstance(key, e.LiteralExpression) else None
        name = value if isinstance(value, str) else None
        return extracted(
            expression_sql(node._child, context), expression_sql(key, context), name=name
        )
    if isinstance(node, e.LambdaFunction):
        names = [".".join(each._name_parts) for each in node._arguments]
        return f"({', '.join(names)}) -> {expression_sql(node._function, context)}"
    if isinstance(node, e.UnresolvedNamedLambdaVariable):
        return ".".join(node._name_parts)
    if isinstance(node, e.CommonInlineUserDefinedFunction) and context.register is not None:
        arguments = [expression_sql(each, context) for each in node._arguments]
        return f"{context.register(node)}({', '.join(arguments)})"
    raise cannot_write(type(node).__name__)


def frame_keys(frame: Any) -> list[object]:
    """Return the plan ids of a DataFrame and of the DataFrames that it is an alias of."""
    found: list[object] = []
    plan = frame._plan
    while plan is not None:
        found.append(plan._plan_id)
        plan = plan._child if type(plan).__name__ == "SubqueryAlias" else None
    return found


def frame_alias(frame: Any) -> str | None:
    """Return the alias of a DataFrame, or the name of the table that it reads, or None."""
    plan = frame._plan
    if type(plan).__name__ == "SubqueryAlias":
        return str(plan._alias)
    named = getattr(plan, "table_name", None)
    return None if named is None else name_parts(str(named))[-1]


def _literal(node: Any) -> str:
    value, kind = node._value, node._dataType.simpleString()
    if value is None:
        return "NULL"
    if kind == "date":
        return f"CAST('{(_EPOCH + dt.timedelta(days=value)).date()}' AS DATE)"
    if kind == "timestamp":
        timestamp = _EPOCH + dt.timedelta(microseconds=value)
        return f"CAST('{timestamp.isoformat()}Z' AS TIMESTAMP)"
    if kind == "timestamp_ntz":
        return literal(_EPOCH + dt.timedelta(microseconds=value), kind)
    if kind.startswith("interval"):
        return literal(dt.timedelta(microseconds=value), kind)
    if isinstance(value, list) and kind.startswith("array"):
        inner = node._dataType.elementType
        return f"array({', '.join(_literal(e.LiteralExpression(each, inner)) for each in value)})"
    if isinstance(value, list | dict | tuple):
        raise cannot_write(f"a literal of {kind}")
    return literal(value, kind)


def _function(node: Any, context: ColumnContext) -> str:
    name, arguments = node._name, node._args
    if name.lower() == "struct":
        members = [
            (_name_of(each, number), expression_sql(each, context))
            for number, each in enumerate(arguments)
        ]
        return struct(members)
    return call(name, [expression_sql(each, context) for each in arguments])


def _name_of(node: Any, number: int) -> str:
    if isinstance(node, e.ColumnAlias):
        return str(node._alias[0])
    if isinstance(node, e.ColumnReference):
        return name_parts(node._unparsed_identifier)[-1]
    return f"col{number + 1}"


def _cast(node: Any, context: ColumnContext) -> str:
    kind = node._data_type
    shown = kind if isinstance(kind, str) else kind.simpleString()
    word = "TRY_CAST" if (node._eval_mode or "").lower() == "try" else "CAST"
    return f"{word}({expression_sql(node._expr, context)} AS {shown})"


def register_function(spark: Any, expression: Any) -> str:
    """Register a Python function that a Column calls, and return its name."""
    function = expression._function
    name = f"deltasql_udf_{id(function)}"
    spark._client.register_udf(
        function._func, function._output_type, name, function._eval_type, expression._deterministic
    )
    return name
