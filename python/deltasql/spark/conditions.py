"""Converts predicates to Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.engine.spark.sql import spark_text
from deltasql.operations.sql.expressions import with_semantics

if TYPE_CHECKING:
    from deltasql.model.predicates.predicate import Predicate


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
