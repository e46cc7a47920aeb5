"""ADD CONSTRAINT and DROP CONSTRAINT: conditions that every row of the table meets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import InvalidDataError, TxnLogError, TxnLogSchemaError
from deltasql.exceptions.prefixes import PLANNING_ERROR, TABLE_ERROR
from deltasql.model.protocol import CONSTRAINT_PREFIX, upgraded_protocol
from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.preview import preview
from deltasql.operations.sql.datafusion import arrow_type
from deltasql.operations.sql.expressions import scalar
from deltasql.operations.sql.normal_form import normal_constraint
from deltasql.operations.sql.types import is_not_true
from deltasql.operations.target import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.operations.target import TableStage

_SHOWN = 5
_MAY_BE_BOOLEAN = (exp.DType.BOOLEAN, exp.DType.NULL, exp.DType.UNKNOWN)


@adds_table_to_errors
def add_constraints(target: TableStage, constraints: Mapping[str, str]) -> None:
    """Add CHECK constraints; rows that are there must meet them already.

    One that is there with the same condition is left as it is.
    """
    if not constraints:
        raise TxnLogError(
            "No check constraint (Name and Expression) provided",
            prefix=TABLE_ERROR,
            help="Give a name and a condition, such as {'positive': 'amount > 0'}.",
        )
    conditions = {name: scalar(text, target.schema) for name, text in constraints.items()}
    for name, condition in conditions.items():
        _refuse_other_than_boolean(name, condition)
    texts = {name: normal_constraint(text, target.schema) for name, text in constraints.items()}
    known = dict(target.configuration)
    for name, text in texts.items():
        present = known.get(CONSTRAINT_PREFIX + name)
        if present is not None and normal_constraint(present, target.schema, escapes=True) != text:
            raise TxnLogError(
                f"Cannot add constraint '{name}': a constraint with this name already exists "
                f"with a different expression. Existing: '{present}', New: '{text}'",
                prefix=TABLE_ERROR,
                help="Drop it first, or choose another name.",
            )
    _refuse_violations(target, conditions)
    wanted = {**known, **{CONSTRAINT_PREFIX + name: text for name, text in texts.items()}}
    target.read(whole_table=True)
    target.change_metadata(
        replace(target.metadata, configuration=wanted),
        upgraded_protocol(target.protocol, target.schema, wanted),
    )
    listed = [{"name": name, "expr": text} for name, text in texts.items()]
    told = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    set_commit_info(target, "ADD CONSTRAINT", {"constraints": told})


def drop_constraint(target: TableStage, name: str, *, raise_if_not_exists: bool = True) -> None:
    """Take a constraint away; without it and without a wish to know, nothing is committed."""
    key = CONSTRAINT_PREFIX + name
    if key not in target.configuration:
        if not raise_if_not_exists:
            return
        raise TxnLogError(
            f"Constraint with name '{name}' does not exist.",
            prefix=TABLE_ERROR,
            help="The table's properties that start with delta.constraints. list them.",
        )
    left = {k: v for k, v in target.configuration.items() if k != key}
    target.change_metadata(replace(target.metadata, configuration=left))
    set_commit_info(target, "DROP CONSTRAINT", {"name": name})


def _refuse_other_than_boolean(name: str, condition: exp.Expr) -> None:
    kind = condition.type
    if kind is not None and kind.this not in _MAY_BE_BOOLEAN:
        raise TxnLogSchemaError(
            "Data validation expression must return boolean values, "
            f"got {arrow_type(kind)} from constraint {name!r}",
            prefix=PLANNING_ERROR,
            help="Write a condition, such as: amount > 0.",
        )


def _refuse_violations(target: TableStage, conditions: Mapping[str, exp.Expr]) -> None:
    """Look for rows for which a condition is false, or null."""
    files = target.files()
    if not len(files):
        return
    engine = target.engine
    rows = engine.scan(target.live(files))
    broken = exp.or_(*(is_not_true(condition) for condition in conditions.values()))
    count = exp.select(exp.Count(this=exp.Star())).from_("rows").where(broken)
    found = engine.collect(engine.query(count, rows=rows)).column(0)[0].as_py()
    if found:
        sample = exp.select(exp.Star()).from_("rows").where(broken).limit(_SHOWN)
        shown = engine.collect(engine.query(sample, rows=rows))
        raise InvalidDataError(
            f"Invalid data found: {found} rows failed validation check.\n"
            f"Preview of invalid data:\n\n{preview(shown)}",
            table=target.name,
            help=f"Change or delete these rows first; checked was: {', '.join(conditions)}.",
        )
