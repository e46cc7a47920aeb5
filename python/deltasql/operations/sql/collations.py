"""Columns with a collation, by which no engine of deltasql compares strings.

The metadata of such a column has the key `__COLLATIONS`. Values are copied. An expression or a
query that could compare them is refused, because the engines would compare their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.predicates.parser import COLLATED
from deltasql.model.schema.schema import COLLATIONS, StructType, nested_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.model.schema.schema import StructField

_ANY_ROWS = (exp.Distinct, exp.SetOperation)
_BY_NUMBER = (exp.Group, exp.Order)


def reject_collated(resolved: exp.Expr) -> None:
    """Raise if an expression does anything with a collated column but copy it, or test for null."""
    for node in resolved.walk():
        if COLLATED in node.meta and node is not resolved and not isinstance(node.parent, exp.Is):
            raise _not_compared(node.name)


def reject_collated_query(query: exp.Query, schemas: Iterable[StructType]) -> None:
    """Raise if a query could compare or sort by a column that has a collation.

    The query may return such columns, and test whether they are null.
    """
    names = {
        field.name.casefold() for each in schemas for field in each.fields if _is_collated(field)
    }
    if not names:
        return
    aliases = [each for each in query.find_all(exp.Alias) if isinstance(each.this, exp.Column)]
    before = 0
    while before < len(names):  # an alias of an inner query can have another alias
        before = len(names)
        names |= {each.alias.casefold() for each in aliases if _names(each.this) & names}
    for column in query.find_all(exp.Column):
        if _names(column) & names and not _is_shown(column):
            raise _not_compared(column.name)
    for join in query.find_all(exp.Join):
        for column in join.args.get("using") or ():
            if column.name.casefold() in names:
                raise _not_compared(column.name)
    hidden = any(each.find(exp.Literal) for each in query.find_all(*_BY_NUMBER))
    if hidden or query.find(*_ANY_ROWS) is not None:
        raise _not_compared(min(names))


def _is_collated(field: StructField) -> bool:
    return COLLATIONS in field.metadata or any(
        COLLATIONS in member.metadata
        for kind in nested_types(field.type)
        if isinstance(kind, StructType)
        for member in kind.fields
    )


def _names(column: exp.Column) -> set[str]:
    """Return the parts of a name, of which one can be a struct that contains the column."""
    return {part.name.casefold() for part in column.parts}


def _is_shown(column: exp.Column) -> bool:
    place: exp.Expr = column
    while isinstance(place.parent, exp.Alias | exp.Dot):
        place = place.parent
    is_returned = isinstance(place.parent, exp.Select) and place.arg_key == "expressions"
    return is_returned or isinstance(place.parent, exp.Is)


def _not_compared(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {name!r} has a collation, by which this engine does not compare strings",
        features=("collations",),
        help="Select the column and compare it in another program, or cast a copy of the rows.",
    )
