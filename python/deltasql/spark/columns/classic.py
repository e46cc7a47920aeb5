"""Converts Columns of classic Spark, which are trees of JVM objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from deltasql.spark.columns.sql_text import (
    ColumnContext,
    call,
    cannot_write,
    case,
    extracted,
    literal,
    struct,
    text,
)


def column_sql(column: Any, context: ColumnContext) -> str:
    """Return the SQL of a Column, without its alias."""
    return node_sql(column._jc.node(), context)


def node_sql(node: Any, context: ColumnContext) -> str:
    """Return the SQL of a node."""
    kind = str(node.getClass().getSimpleName())
    write = _WRITERS.get(kind)
    if write is None:
        raise cannot_write(kind)
    return write(node, context)


def frame_keys(frame: Any) -> list[object]:
    """Return the expression ids of a DataFrame's columns, which identify them."""
    return [attribute.exprId().id() for attribute in _output(frame)]


def frame_alias(frame: Any) -> str | None:
    """Return the alias of a DataFrame, or None if its columns do not all have the same one."""
    found = set()
    for attribute in _output(frame):
        qualifier = _items(attribute.qualifier())
        found.add(str(qualifier[-1]) if qualifier else None)
    return found.pop() if len(found) == 1 else None


def _literal(node: Any, context: ColumnContext) -> str:
    value = node.value()
    kind = str(node.dataType().get().sql()) if node.dataType().isDefined() else None
    if value is None or isinstance(value, bool | bytes | bytearray):
        return literal(value, "void")
    if isinstance(value, str):
        return text(value) if kind in (None, "STRING") else literal(value, str(kind))
    if isinstance(value, int | float):
        wide = isinstance(value, int) and not -(2**31) <= value < 2**31
        plain = "DOUBLE" if isinstance(value, float) else "BIGINT" if wide else "int"
        return literal(value, _int(kind) if kind is not None else plain)
    return _java_literal(value, kind)


def _java_literal(value: Any, kind: str | None) -> str:
    if not hasattr(value, "getClass"):  # py4j converts java.math.BigDecimal to Decimal
        return literal(value, kind or _decimal(value))
    name = str(value.getClass().getName())
    shown = str(value.toString())
    if name in ("java.sql.Date", "java.time.LocalDate"):
        return f"CAST('{shown}' AS DATE)"
    if name == "java.sql.Timestamp":
        return f"CAST('{value.toInstant().toString()}' AS TIMESTAMP)"
    if name == "java.time.Instant":
        return f"CAST('{shown}' AS TIMESTAMP)"
    if name == "java.time.LocalDateTime":
        return f"CAST('{shown}' AS TIMESTAMP_NTZ)"
    if name == "java.time.Duration":
        return literal(
            timedelta(seconds=value.getSeconds(), microseconds=value.getNano() // 1000), name
        )
    if name in ("java.math.BigDecimal", "scala.math.BigDecimal"):
        return (
            f"CAST('{shown}' AS DECIMAL({max(value.precision(), value.scale())},{value.scale()}))"
        )
    if name in _NUMBERS:
        return literal(shown, _NUMBERS[name])
    raise cannot_write(f"a literal of {name}")


def _int(kind: str) -> str:
    return "int" if kind == "INT" else kind


def _decimal(value: Any) -> str:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -exponent)
    return f"DECIMAL({max(len(digits), scale)},{scale})"


def _attribute(node: Any, context: ColumnContext) -> str:
    return context.attribute(None, [str(part) for part in _items(node.nameParts())])


def _function(node: Any, context: ColumnContext) -> str:
    name = str(node.functionName())
    arguments = _items(node.arguments())
    if name.lower() == "struct":
        return struct([_member(each, number, context) for number, each in enumerate(arguments)])
    return call(name, [node_sql(each, context) for each in arguments])


def _member(node: Any, number: int, context: ColumnContext) -> tuple[str, str]:
    kind = str(node.getClass().getSimpleName())
    value = node_sql(node, context)
    if kind == "Alias":
        return str(_items(node.name())[0]), value
    if kind == "UnresolvedAttribute":
        return str(_items(node.nameParts())[-1]), value
    if kind == "ExpressionColumnNode" and hasattr(node.expression(), "name"):
        return str(node.expression().name()), value
    return f"col{number + 1}", value


def _cast(node: Any, context: ColumnContext) -> str:
    mode = node.evalMode()
    word = "TRY_CAST" if mode.isDefined() and "try" in str(mode.get()).lower() else "CAST"
    return f"{word}({node_sql(node.child(), context)} AS {node.dataType().sql()})"


def _extract(node: Any, context: ColumnContext) -> str:
    key = node.extraction()
    name = None
    if str(key.getClass().getSimpleName()) == "Literal" and isinstance(key.value(), str):
        name = str(key.value())
    return extracted(node_sql(node.child(), context), node_sql(key, context), name=name)


def _case(node: Any, context: ColumnContext) -> str:
    branches = [
        (node_sql(each._1(), context), node_sql(each._2(), context))
        for each in _items(node.branches())
    ]
    last = node.otherwise()
    return case(branches, node_sql(last.get(), context) if last.isDefined() else None)


def _lambda(node: Any, context: ColumnContext) -> str:
    names = [str(each.name()) for each in _items(node.arguments())]
    return f"({', '.join(names)}) -> {node_sql(node.function(), context)}"


def _expression(node: Any, context: ColumnContext) -> str:
    return _catalyst(node.expression(), context)


def _catalyst(expression: Any, context: ColumnContext) -> str:
    """Write an expression that Spark has already resolved: a column or a Python function."""
    kind = str(expression.getClass().getSimpleName())
    if kind == "AttributeReference":
        return context.attribute(expression.exprId().id(), [str(expression.name())])
    if kind == "ColumnNodeExpression":
        return node_sql(expression.node(), context)
    if kind == "Alias":
        return _catalyst(expression.child(), context)
    if kind == "GetStructField":
        child = _catalyst(expression.child(), context)
        name = str(expression.extractFieldName())
        return extracted(child, text(name), name=name)
    if kind == "PythonUDF" and context.register is not None:
        arguments = [_catalyst(each, context) for each in _items(expression.children())]
        return f"{context.register(expression)}({', '.join(arguments)})"
    raise cannot_write(kind)


def register_function(spark: Any, expression: Any) -> str:
    """Register a Python function that a Column calls, and return its name."""
    name = f"deltasql_udf_{expression.resultId().id()}"
    python = spark._sc._jvm.org.apache.spark.sql.execution.python.UserDefinedPythonFunction
    made = python(
        name,
        expression.func(),
        expression.dataType(),
        expression.evalType(),
        expression.udfDeterministic(),
    )
    spark._jsparkSession.udf().registerPython(name, made)
    return name


def _output(frame: Any) -> list[Any]:
    return _items(frame._jdf.queryExecution().analyzed().output())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


_NUMBERS = {
    "java.lang.Byte": "TINYINT",
    "java.lang.Short": "SMALLINT",
    "java.lang.Float": "FLOAT",
    "java.lang.Double": "DOUBLE",
    "java.lang.Long": "BIGINT",
}
_WRITERS: dict[str, Callable[[Any, ColumnContext], str]] = {
    "Literal": _literal,
    "UnresolvedAttribute": _attribute,
    "UnresolvedFunction": _function,
    "Alias": lambda node, context: node_sql(node.child(), context),
    "Cast": _cast,
    "SqlExpression": lambda node, _: f"({node.expression()})",
    "UnresolvedExtractValue": _extract,
    "CaseWhenOtherwise": _case,
    "LambdaFunction": _lambda,
    "UnresolvedNamedLambdaVariable": lambda node, _: str(node.name()),
    "ExpressionColumnNode": _expression,
}
