"""Convert conditions that users of Spark write to Spark SQL, and remove the alias of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.spark.sql import spark_text
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.parser import PredicateDialect, parse_expression
from deltasql.operations.sql.expressions import with_semantics

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.model.predicates.predicate import Predicate

_QUALIFIERS = ("table", "db", "catalog")


def spark_condition(predicate: Predicate) -> str:
    """Return the SQL of a predicate for `DataFrame.where`.

    If a timestamp column is compared with a literal without a time zone, the literal is in UTC.
    Data skipping uses UTC too, while Spark would use the time zone of the session.

    >>> from deltasql.model.predicates.predicate import parse_predicate
    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("at", "timestamp"), StructField("s", "string")))
    >>> spark_condition(parse_predicate("at < '2024-05-01' AND s = '2024-05-01'", table))
    "`at` < CAST('2024-05-01T00:00:00Z' AS TIMESTAMP_LTZ) AND `s` = '2024-05-01'"
    """
    return spark_text(with_semantics(predicate.expression.copy(), predicate.flavour))


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
