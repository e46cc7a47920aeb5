"""The rules of a table for its rows as Spark SQL, for clients that check the rows they write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.session_copy import QUERY_SETTINGS
from deltasql.engine.spark.sql import spark_text
from deltasql.operations.rules.row_checks import (
    broken_condition,
    generated_value,
    help_of,
    rules_of,
)
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from deltasql.operations.table_stage import TableStage


@adds_table_to_errors
def rules_plan(stage: TableStage) -> dict[str, Any] | None:
    """Return how a client computes generated columns and finds rows that break a rule.

    Return None if the table has no rules, or NOT NULL only, which Spark checks itself.
    """
    rules = rules_of(stage)
    if not (rules.conditions or rules.generated):
        return None
    broken = broken_condition(rules)
    assert broken is not None
    return {
        "settings": QUERY_SETTINGS,
        "generated": {
            name: spark_text(generated_value(stage.schema, rules, name)) for name in rules.generated
        },
        "broken": spark_text(broken.copy()),
        "help": help_of(rules),
    }
