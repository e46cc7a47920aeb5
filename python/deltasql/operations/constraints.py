"""ADD CONSTRAINT and DROP CONSTRAINT: conditions that every row of the table meets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogError
from deltasql.model.protocol import CONSTRAINT_PREFIX, upgraded_protocol
from deltasql.operations.expressions import condition, normal
from deltasql.operations.info import tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.operations.target import Target

_SHOWN = 5


def add_constraints(target: Target, constraints: Mapping[str, str]) -> None:
    """Add CHECK constraints; rows that are there must meet them already.

    One that is there with the same condition is left as it is.
    """
    if not constraints:
        raise TxnLogError(
            "No check constraint (Name and Expression) provided",
            help="Give a name and a condition, such as {'positive': 'amount > 0'}.",
        )
    conditions = [condition(text, target.schema) for text in constraints.values()]
    texts = {name: normal(text) for name, text in constraints.items()}
    known = dict(target.configuration)
    for name, text in texts.items():
        present = known.get(CONSTRAINT_PREFIX + name)
        if present is not None and normal(present) != text:
            raise TxnLogError(
                f"Cannot add constraint '{name}': a constraint with this name already exists "
                f"with a different expression. Existing: '{present}', New: '{text}'",
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
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    tell(target, "ADD CONSTRAINT", {"constraints": text})


def drop_constraint(target: Target, name: str, *, raise_if_not_exists: bool = True) -> None:
    """Take a constraint away; without it and without a wish to know, nothing is committed."""
    key = CONSTRAINT_PREFIX + name
    if key not in target.configuration:
        if not raise_if_not_exists:
            return
        raise TxnLogError(
            f"Constraint with name '{name}' does not exist.",
            help="The table's properties that start with delta.constraints. list them.",
        )
    left = {k: v for k, v in target.configuration.items() if k != key}
    target.change_metadata(replace(target.metadata, configuration=left))
    tell(target, "DROP CONSTRAINT", {"name": name})


def _refuse_violations(target: Target, conditions: list[exp.Expr]) -> None:
    files = target.files()
    if not len(files):
        return
    engine = target.engine
    rows = engine.scan(target.live(files))
    holds = exp.and_(*(exp.Is(this=exp.paren(c.copy()), expression=exp.true()) for c in conditions))
    failing = engine.query(
        exp.select("*").from_("rows").where(exp.not_(exp.paren(holds))), rows=rows
    )
    counted = engine.query(
        exp.select(exp.alias_(exp.Count(this=exp.Star()), "n")).from_("failing"), failing=failing
    )
    number = engine.collect(counted)["n"][0].as_py()
    if number:
        sample = engine.query(exp.select("*").from_("failing").limit(_SHOWN), failing=failing)
        raise TxnLogError(
            f"Invalid data found: {number} rows failed validation check.\n"
            f"Preview of invalid data:\n\n{preview(engine.collect(sample))}",
            help="Change or delete these rows first.",
        )


def preview(rows: pa.Table) -> str:
    """Draw a few rows as a box.

    >>> import pyarrow as pa
    >>> print(preview(pa.table({"id": [1, None]})))
    +----+
    | id |
    +----+
    | 1  |
    |    |
    +----+
    """
    cells = [list(rows.column_names)]
    cells += [["" if v is None else str(v) for v in row.values()] for row in rows.to_pylist()]
    widths = [max(len(row[i]) for row in cells) for i in range(rows.num_columns)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    drawn = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    return "\n".join([line, drawn[0], line, *drawn[1:], line])
