"""ALTER TABLE ADD CONSTRAINT and DROP CONSTRAINT: CHECK constraints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from deltasql.exceptions.prefixes import PLANNING_ERROR, TABLE_ERROR
from deltasql.model.protocol import CONSTRAINT_PREFIX, upgraded_protocol
from deltasql.operations.rules.row_checks import PREVIEW_ROWS, invalid_data_error
from deltasql.operations.sql.datafusion import arrow_type
from deltasql.operations.sql.expressions import scalar
from deltasql.operations.sql.normal_form import normal_constraint
from deltasql.operations.sql.queries import is_not_true
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.operations.table_stage import TableStage

_MAY_BE_BOOLEAN = (exp.DType.BOOLEAN, exp.DType.NULL, exp.DType.UNKNOWN)


@adds_table_to_errors
def add_constraints(stage: TableStage, constraints: Mapping[str, str]) -> None:
    """Add CHECK constraints; raise if an existing row violates one of them.

    A constraint that already exists with the same condition is skipped.
    """
    if not constraints:
        raise TxnLogError(
            "No check constraint (Name and Expression) provided",
            prefix=TABLE_ERROR,
            help="Give a name and a condition, such as {'positive': 'amount > 0'}.",
        )
    conditions = {name: scalar(text, stage.schema) for name, text in constraints.items()}
    for name, condition in conditions.items():
        _check_boolean(name, condition)
    texts = {name: normal_constraint(text, stage.schema) for name, text in constraints.items()}
    known = dict(stage.configuration)
    for name, text in texts.items():
        present = known.get(CONSTRAINT_PREFIX + name)
        if present is not None and normal_constraint(present, stage.schema, escapes=True) != text:
            raise TxnLogError(
                f"Cannot add constraint '{name}': a constraint with this name already exists "
                f"with a different expression. Existing: '{present}', New: '{text}'",
                prefix=TABLE_ERROR,
                help="Drop it first, or choose another name.",
            )
    check_existing_rows(
        stage, {name: is_not_true(condition) for name, condition in conditions.items()}
    )
    wanted = {**known, **{CONSTRAINT_PREFIX + name: text for name, text in texts.items()}}
    stage.read(whole_table=True)
    stage.change_metadata(
        replace(stage.metadata, configuration=wanted),
        upgraded_protocol(stage.protocol, stage.schema, wanted),
    )
    listed = [{"name": name, "expr": text} for name, text in texts.items()]
    listed_json = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    stage.set_commit_info("ADD CONSTRAINT", {"constraints": listed_json})


def drop_constraint(stage: TableStage, name: str, *, raise_if_not_exists: bool = True) -> None:
    """Drop a constraint.

    If it does not exist, raise, or do nothing if `raise_if_not_exists` is False.
    """
    key = CONSTRAINT_PREFIX + name
    if key not in stage.configuration:
        if not raise_if_not_exists:
            return
        raise TxnLogError(
            f"Constraint with name '{name}' does not exist.",
            prefix=TABLE_ERROR,
            help="Look for table properties that start with delta.constraints.",
        )
    left = {k: v for k, v in stage.configuration.items() if k != key}
    stage.change_metadata(replace(stage.metadata, configuration=left))
    stage.set_commit_info("DROP CONSTRAINT", {"name": name})


def _check_boolean(name: str, condition: exp.Expr) -> None:
    kind = condition.type
    if kind is not None and kind.this not in _MAY_BE_BOOLEAN:
        raise TxnLogSchemaError(
            "Data validation expression must return boolean values, "
            f"got {arrow_type(kind)} from constraint {name!r}",
            prefix=PLANNING_ERROR,
            help="Write a condition, such as: amount > 0.",
        )


def check_existing_rows(stage: TableStage, broken: Mapping[str, exp.Expr]) -> None:
    """Raise if an existing row breaks a rule. `broken` has a condition for such rows per rule."""
    files = stage.files()
    if not len(files):
        return
    engine = stage.engine
    rows = engine.scan(stage.live(files))
    condition = exp.or_(*broken.values())
    count = exp.select(exp.Count(this=exp.Star())).from_("rows").where(condition)
    found = engine.collect(engine.query(count, rows=rows)).column(0)[0].as_py()
    if found:
        sample = exp.select(exp.Star()).from_("rows").where(condition).limit(PREVIEW_ROWS)
        shown = engine.collect(engine.query(sample, rows=rows))
        advice = f"Change or delete these rows first; the constraints are: {', '.join(broken)}."
        raise invalid_data_error(stage.name, found, shown, advice)
