"""Rewrite the text of Spark expressions: for DataFusion's SQL, or without the table's alias."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.parser import (
    DataFusionDialect,
    PredicateDialect,
    parse_expression,
)

if TYPE_CHECKING:
    from collections.abc import Collection

_DIFFERS = re.compile(r"\\|date_format|to_char|to_date", re.IGNORECASE)
_QUALIFIERS = ("table", "db", "catalog")


def to_datafusion(text: str) -> str:
    r"""Return a Spark condition in the dialect of DataFusion, where a backslash is not an escape.

    >>> to_datafusion(r"s = 'it\'s' AND s RLIKE '\\d' AND date_format(at, 'yyyy') = '2024'")
    "s = 'it''s' AND s RLIKE '\\d' AND TO_CHAR(CAST(at AS TIMESTAMP), '%Y') = '2024'"
    """
    if _DIFFERS.search(text) is None:
        return text
    try:
        return parse_expression(text, escapes=True).sql(dialect=DataFusionDialect)
    except TxnLogSchemaError:
        return text  # a later parser reports the error


def without_alias(text: str, alias: str, columns: Collection[str]) -> str:
    """Remove an alias from the names in an expression, unless a column has the alias as its name.

    >>> without_alias("p.age > 3 AND p.home.city = 'p.x'", "p", ["age", "home"])
    "age > 3 AND home.city = 'p.x'"
    """
    plain = alias.casefold()
    if plain not in text.casefold() or plain in {name.casefold() for name in columns}:
        return text
    try:
        tree = parse_expression(text, escapes=True)
    except TxnLogSchemaError:
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
