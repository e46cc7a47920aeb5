"""Reject expressions and queries that could compare strings of columns with a collation.

The metadata of such a column has the key `__COLLATIONS`. The engines of deltasql can copy its
values. They cannot compare values by a collation: they would compare the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.predicates.parser import COLLATED
from deltasql.model.schema.schema import is_collated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.model.schema.schema import StructType

_ANY_COLUMNS = (exp.Distinct, exp.SetOperation, exp.Columns)
"""Parts of a query that can compare columns, or pass them on, without naming them."""


def reject_collated(resolved: exp.Expr) -> None:
    """Raise if an expression does more with a collated column than copy it or test it for null."""
    for node in resolved.walk():
        if COLLATED in node.meta and node is not resolved and not _is_tested_for_null(node):
            raise _not_compared(node.name)


def reject_collated_query(query: exp.Query, schemas: Iterable[StructType]) -> None:
    """Raise if a query could compare or sort by a column that has a collation.

    The outermost SELECT may return such columns, and test whether they are null. A subquery must
    not return them, because the outer query could compare the values under another name.
    """
    names = {
        field.name.casefold()
        for each in schemas
        for field in each.fields
        if is_collated(field.type, field.metadata)
    }
    if not names:
        return
    if _compares_unnamed_columns(query):
        raise _not_compared(min(names))
    for alias in query.find_all(exp.Alias):
        if any(_names(each) & names for each in alias.find_all(exp.Column)):
            names.add(alias.alias.casefold())
    for column in query.find_all(exp.Column):
        if _names(column) & names and not _is_shown(column, query):
            raise _not_compared(column.name)
    for join in query.find_all(exp.Join):
        for column in join.args.get("using") or ():
            if column.name.casefold() in names:
                raise _not_compared(column.name)


def _compares_unnamed_columns(query: exp.Query) -> bool:
    if query.find(*_ANY_COLUMNS) is not None:
        return True
    inner = (each for each in query.find_all(exp.Select) if each is not query)
    if any(each.is_star for each in inner):
        return True
    if any(each.args.get("all") or each.find(exp.Literal) for each in query.find_all(exp.Group)):
        return True
    if any(each.method.upper() == "NATURAL" for each in query.find_all(exp.Join)):
        return True
    for each in query.find_all(exp.Ordered):
        if isinstance(each.this, exp.Literal) or each.this.name.upper() == "ALL":
            return True
    tables = {each.alias_or_name.casefold() for each in query.find_all(exp.Table, exp.CTE)}
    columns = query.find_all(exp.Column)
    return any(each.name.casefold() in tables for each in columns)  # a row, as a value


def _names(column: exp.Column) -> set[str]:
    """Return all parts of a dotted name: any of them can be the name of a column."""
    names = {part.name.casefold() for part in column.parts}
    place: exp.Expr = column
    while isinstance(place.parent, exp.Dot):
        place = place.parent
        names.add(place.expression.name.casefold())
    return names


def _is_shown(column: exp.Column, query: exp.Query) -> bool:
    """Return whether the outermost SELECT returns a column as it is, or tests it for null."""
    place: exp.Expr = column
    while isinstance(place.parent, exp.Alias | exp.Dot):
        place = place.parent
    is_returned = place.parent is query and place.arg_key == "expressions"
    return is_returned or _is_tested_for_null(place)


def _is_tested_for_null(node: exp.Expr) -> bool:
    parent = node.parent
    return isinstance(parent, exp.Is) and isinstance(parent.expression, exp.Null)


def _not_compared(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {name!r} has a collation, and this engine cannot compare strings by a collation",
        features=("collations",),
        help="Select the column and compare it in another program, or cast a copy of the rows.",
    )
