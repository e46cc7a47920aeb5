"""Removes the table's alias from names in expressions on a single table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.model.predicates.parser import PredicateDialect

if TYPE_CHECKING:
    from collections.abc import Collection

_QUALIFIERS = ("table", "db", "catalog")


def without_alias(text: str, alias: str, columns: Collection[str]) -> str:
    """Remove an alias from the names in an expression, unless a column has the same name.

    >>> without_alias("p.age > 3 AND p.home.city = 'p.x'", "p", ["age", "home"])
    "age > 3 AND home.city = 'p.x'"
    """
    plain = alias.casefold()
    if plain not in text.casefold() or plain in {name.casefold() for name in columns}:
        return text
    try:
        tree = sqlglot.parse_one(text, read=PredicateDialect)
    except SqlglotError:
        return text  # a later parser reports the error
    found = [
        node
        for node in tree.find_all(exp.Column)
        if len(node.parts) > 1 and node.parts[0].name.casefold() == plain
    ]
    if not found:
        return text
    holder = exp.Paren(this=tree)
    for node in found:
        name, *qualifiers = reversed([part.copy() for part in node.parts[1:]])
        node.replace(exp.Column(this=name, **dict(zip(_QUALIFIERS, qualifiers, strict=False))))
    return str(holder.this.sql(dialect=PredicateDialect))
