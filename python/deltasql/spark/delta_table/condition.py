"""Converts predicates for Spark, with the same meaning that they have in data skipping."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.model.predicates.parser import DataFusionDialect, PredicateDialect

if TYPE_CHECKING:
    from deltasql.model.predicates.predicate import Predicate

_WITHOUT_ZONE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?")
_DIFFERS = re.compile(r"\\|date_format|to_char|to_date", re.IGNORECASE)
_COMPARED = (exp.Binary, exp.Between, exp.In)


def in_datafusion_words(text: str) -> str:
    r"""Return a Spark condition in the dialect of DataFusion, where a backslash is not an escape.

    >>> in_datafusion_words(r"s = 'it\'s' AND s RLIKE '\\d' AND date_format(at, 'yyyy') = '2024'")
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
    moments = {
        column.path[-1].casefold() for column in predicate.columns if column.type == "timestamp"
    }
    expression = predicate.expression.copy()
    for literal in list(expression.find_all(exp.Literal)):
        found = _WITHOUT_ZONE.fullmatch(literal.this) if literal.is_string else None
        compared = literal.find_ancestor(*_COMPARED)
        if found and compared is not None and _names(compared) & moments:
            time = "" if found[1] else "T00:00:00"
            literal.replace(exp.Literal.string(f"{literal.this}{time}Z"))
    return expression.sql(dialect="spark")


def _names(node: exp.Expr) -> set[str]:
    return {name.this.casefold() for name in node.find_all(exp.Identifier)}
