"""Bind parameters: values replace `:name` in the parsed tree and are never part of SQL text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.exceptions import InvalidQueryError
from deltasql.model.predicates.parser import PredicateDialect, parse_expression

if TYPE_CHECKING:
    from deltasql.model.statements.statement import SqlPart

    Parameters = Mapping[str, Any] | Sequence[Any] | None


def named_parameters(parameters: Parameters) -> dict[str, Any]:
    """Return parameters by name; the values of a list are named `_1`, `_2` and so on."""
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise TypeError(
            f"parameters must be a dict or a list, found to be {type(parameters).__name__}"
        )
    return {f"_{number}": value for number, value in enumerate(parameters, 1)}


def bind(tree: exp.Expr, values: Mapping[str, Any]) -> exp.Expr:
    """Replace the parameters of a tree by literals."""

    def bound(node: exp.Expr) -> exp.Expr:
        return (
            literal(parameter_value(node.name, values))
            if isinstance(node, exp.Placeholder)
            else node
        )

    return tree.transform(bound)


def bound_text(part: SqlPart, values: Mapping[str, Any]) -> str:
    """Return an expression in Spark's SQL, with literals in place of its parameters.

    >>> from deltasql.model.statements.statement import SqlPart
    >>> bound_text(SqlPart("name = :name AND id > 3"), {"name": "it's"})
    "name = 'it''s' AND id > 3"
    """
    if ":" not in part.text:
        return part.text
    tree = parse_expression(part.text, escapes=True)
    if tree.find(exp.Placeholder) is None:
        return part.text
    return str(bind(tree, values).sql(dialect=PredicateDialect))


def literal(value: Any) -> exp.Expr:
    """Return the literal of a Python value."""
    if isinstance(value, float):
        text = "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")
        return exp.cast(exp.Literal.string(text), exp.DType.DOUBLE)
    if isinstance(value, Decimal) and value.is_finite():
        digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
        scale = max(0, -exponent)
        kind = exp.DataType.build(f"DECIMAL({max(digits + max(0, exponent), scale)}, {scale})")
        return exp.cast(exp.Literal.string(f"{value:f}"), kind)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return exp.cast(exp.Literal.string(value.isoformat(" ")), exp.DType.TIMESTAMPNTZ)
        text = value.astimezone(UTC).isoformat()
        return exp.cast(exp.Literal.string(text), exp.DType.TIMESTAMPTZ)
    known = value is None or isinstance(value, bool | int | str | bytes | date)
    if known or (isinstance(value, list | tuple) and _are_known(value)):
        return exp.convert(value)
    raise TypeError(
        f"a parameter cannot be of type {type(value).__name__}: use None, bool, int, float, "
        "Decimal, str, bytes, date, datetime, or a list of them"
    )


def spark_literal(value: Any) -> str:
    """Return the literal of a Python value in Spark's SQL.

    It has the same meaning whether or not backslashes are escape characters in the session.

    >>> spark_literal("plain"), spark_literal("it's"), spark_literal([1, None])
    ("'plain'", "CAST(X'69742773' AS STRING)", 'array(1, NULL)')
    """
    if isinstance(value, str):
        if re.fullmatch(r"[\w .,:/-]*", value):
            return f"'{value}'"
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, list | tuple):
        return f"array({', '.join(spark_literal(each) for each in value)})"
    return str(literal(value).sql(dialect="spark"))


def _are_known(values: Sequence[Any]) -> bool:
    return all(literal(each) is not None for each in values)


def parameter_value(name: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a parameter; raise InvalidQueryError if it has none."""
    if name in values:
        return values[name]
    number = name.removeprefix("_")
    if name.startswith("_") and number.isdecimal():
        raise InvalidQueryError(
            f"the statement has at least {number} parameters `?`, but only {len(values)} of them "
            "have a value",
            help="Give one value for each `?`: parameters=[…].",
        )
    raise InvalidQueryError(
        f"the parameter :{name} has no value",
        help=f'Give it a value: parameters={{"{name}": …}}.',
    )
