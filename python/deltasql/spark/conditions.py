"""Converts conditions between the SQL of Spark's users, of DataFusion and of Spark itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.model.predicates.parser import DataFusionDialect, PredicateDialect

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.model.predicates.predicate import Predicate

_WITHOUT_ZONE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?")
_DIFFERS = re.compile(r"\\|date_format|to_char|to_date", re.IGNORECASE)
_QUALIFIERS = ("table", "db", "catalog")
_COMPARED = (exp.Binary, exp.Between, exp.In)


def to_datafusion(text: str) -> str:
    r"""Return a Spark condition in the dialect of DataFusion, where a backslash is not an escape.

    >>> to_datafusion(r"s = 'it\'s' AND s RLIKE '\\d' AND date_format(at, 'yyyy') = '2024'")
    "s = 'it''s' AND s RLIKE '\\d' AND TO_CHAR(CAST(at AS TIMESTAMP), '%Y') = '2024'"
    """
    if _DIFFERS.search(text) is None:
        return text
    try:
        return sqlglot.parse_one(text, read=PredicateDialect).sql(dialect=DataFusionDialect)
    except SqlglotError:
        return text  # a later parser reports the error


def spark_condition(predicate: Predicate) -> str:
    """Return the SQL of a predicate for `DataFrame.where`.

    A literal without a time zone that is compared with a timestamp column is UTC. Data skipping
    uses UTC, but Spark would use the time zone of the session.

    >>> from deltasql.model.predicates.predicate import parse_predicate
    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("at", "timestamp"), StructField("s", "string")))
    >>> spark_condition(parse_predicate("at < '2024-05-01' AND s = '2024-05-01'", table))
    "`at` < '2024-05-01T00:00:00Z' AND `s` = '2024-05-01'"
    """
    timestamps = {
        column.path[-1].casefold() for column in predicate.columns if column.type == "timestamp"
    }
    expression = predicate.expression.copy()
    for literal in list(expression.find_all(exp.Literal)):
        found = _WITHOUT_ZONE.fullmatch(literal.this) if literal.is_string else None
        compared = literal.find_ancestor(*_COMPARED)
        if found and compared is not None and _names(compared) & timestamps:
            time = "" if found[1] else "T00:00:00"
            literal.replace(exp.Literal.string(f"{literal.this}{time}Z"))
    return expression.sql(dialect="spark")


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


def _names(node: exp.Expr) -> set[str]:
    return {name.this.casefold() for name in node.find_all(exp.Identifier)}
