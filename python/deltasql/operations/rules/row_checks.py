"""Check new rows against the table's rules: NOT NULL, constraints, generated columns.

Rows are Arrow batches or a relation of an engine. For Arrow batches, NOT NULL is checked without an
engine, and expressions are evaluated by DuckDB. A relation is checked by its own engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.choose import open_engine
from deltasql.engine.inputs import python_values
from deltasql.exceptions import InvalidDataError, TxnLogSchemaError, TxnLogTransactionError
from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import StructType
from deltasql.model.schema.widening import is_enabled
from deltasql.operations.rules.not_null import NotNull, not_null_paths, null_condition, null_rows
from deltasql.operations.rules.schema_merge import GENERATED
from deltasql.operations.sql.expressions import scalar
from deltasql.operations.sql.queries import column, is_not_true
from deltasql.operations.sql.types import cast_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deltasql.engine.base import Engine, Relation
    from deltasql.operations.table_stage import TableStage

INVARIANTS = "delta.invariants"
PREVIEW_ROWS = 5
_WIDTH = 60
_ROWS = 100_000
"""Minimum rows that one query checks; a query for each small batch would be slower."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for each row that a table's schema and properties define."""

    not_null: tuple[NotNull, ...]
    conditions: Mapping[str, exp.Expr]
    """Conditions that must be true, by constraint name or column name."""
    generated: Mapping[str, exp.Expr]
    """Expressions of generated columns, by column name."""

    def __bool__(self) -> bool:
        return bool(self.not_null or self.conditions or self.generated)


def rules_of(stage: TableStage) -> Rules:
    """Return the rules of a table, including staged changes."""
    constraints = TableProperties(stage.configuration).constraints
    return _rules(stage.metadata.schema_string, tuple(sorted(constraints.items())))


def reject_append_only(stage: TableStage) -> None:
    """Raise if the table is append-only. Operations call this before they write files."""
    if TableProperties(stage.configuration).append_only:
        raise TxnLogTransactionError(
            "The transaction includes Remove action with data change but "
            "Delta table is append-only",
            table=stage.name,
            help="Set delta.appendOnly to false to delete or change rows.",
        )


def generated_columns(stage: TableStage) -> Sequence[str]:
    """Return the names of the generated columns."""
    return list(rules_of(stage).generated)


def widening_columns(stage: TableStage) -> frozenset[str]:
    """Return the columns whose type a write with schema evolution may widen.

    If type widening is not enabled, there are none. Otherwise these are all columns that no rule
    uses, because the result of a rule may depend on the type of a column.
    """
    if not is_enabled(stage.configuration):
        return frozenset()
    rules = rules_of(stage)
    used = {
        node.name
        for rule in (*rules.conditions.values(), *rules.generated.values())
        for node in rule.find_all(exp.Column)
    }
    return frozenset(stage.schema.names) - used - rules.generated.keys()


def checked(
    stage: TableStage,
    relation: Relation,
    *,
    engine: Engine | None = None,
    predicate: exp.Expr | None = None,
) -> Relation:
    """Return the same rows; raise if rows break a rule. The error shows some of these rows.

    `predicate` is an additional condition that must be true. The rows are computed only once.
    """
    rules = rules_of(stage)
    broken = broken_condition(rules, predicate)
    if broken is None:
        return relation
    runner = engine or stage.engine
    kept = runner.keep(relation)
    rows = exp.select(*(column(name) for name in stage.schema.names)).from_("rows").where(broken)
    count = exp.select(exp.Count(this=exp.Star())).from_("rows").where(broken)
    found = runner.collect(runner.query(count, rows=kept)).column(0)[0].as_py()
    if found:
        shown = runner.collect(runner.query(rows.limit(PREVIEW_ROWS), rows=kept))
        raise _invalid(stage, int(found), shown, rules)
    return kept


def with_generated(
    stage: TableStage, relation: Relation, *, engine: Engine | None = None
) -> Relation:
    """Add generated columns that are missing in the rows."""
    rules = rules_of(stage)
    missing = [name for name in rules.generated if name not in relation.columns]
    if not missing:
        return relation
    query = exp.select(
        *(column(name) for name in relation.columns),
        *(_computed(stage.schema, rules, name) for name in missing),
    ).from_("rows")
    return (engine or stage.engine).query(query, rows=relation)


def checked_batches(
    stage: TableStage,
    batches: Iterable[pa.RecordBatch],
    *,
    generate: Sequence[str] = (),
    predicate: exp.Expr | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches after checking their rows.

    `generate` are the names of generated columns to compute before the check.
    """
    rules = rules_of(stage)
    needs_engine = bool(rules.conditions or rules.generated or predicate is not None)
    for batch in combined(batches) if needs_engine else batches:
        if not needs_engine:
            _check_not_null(stage, rules, batch)
            yield batch
            continue
        # Use a separate engine. The engine of the transaction may be waiting for this batch, and
        # it would hold the batch in memory until the transaction ends.
        with open_engine(stage.config, name="duckdb") as engine:
            whole = _generated(stage, rules, batch, generate, engine) if generate else batch
            _check_not_null(stage, rules, whole)
            _check_constraints(stage, rules, whole, predicate, frozenset(generate), engine)
        yield whole


def _check_not_null(stage: TableStage, rules: Rules, batch: pa.RecordBatch) -> None:
    found = None
    for rule in rules.not_null:
        rows = null_rows(batch, rule)
        if rows is not None:
            found = rows if found is None else pc.or_(found, rows)
    if found is not None:
        broken = batch.filter(found)
        raise _invalid(stage, broken.num_rows, pa.Table.from_batches([broken]), rules)


def _check_constraints(
    stage: TableStage,
    rules: Rules,
    batch: pa.RecordBatch,
    predicate: exp.Expr | None,
    computed: frozenset[str],
    engine: Engine,
) -> None:
    broken = _broken_expressions(rules, predicate, computed)
    if broken is None:
        return
    rows = exp.select(exp.Star()).from_("rows").where(broken)
    found = engine.collect(engine.query(rows, rows=engine.rows(batch)))
    if found.num_rows:
        raise _invalid(stage, found.num_rows, found, rules)


def _generated(
    stage: TableStage, rules: Rules, batch: pa.RecordBatch, missing: Sequence[str], engine: Engine
) -> pa.RecordBatch:
    """Compute the values of generated columns, which are null in the batch."""
    schema = stage.schema
    columns = [
        _computed(schema, rules, name) if name in missing else column(name)
        for name in batch.schema.names
    ]
    rows = engine.rows(batch.select([n for n in batch.schema.names if n not in missing]))
    table = engine.collect(engine.query(exp.select(*columns).from_("rows"), rows=rows))
    (whole,) = table.cast(batch.schema).combine_chunks().to_batches() or [batch.slice(0, 0)]
    return whole


def broken_condition(rules: Rules, predicate: exp.Expr | None = None) -> exp.Expr | None:
    """Return the condition for rows that break a rule, or for which the predicate is not true.

    A constraint that is null counts as broken. Return None if there are no rules.
    """
    nulls = [null_condition(rule) for rule in rules.not_null]
    broken = _broken_expressions(rules, predicate, frozenset())
    parts = nulls if broken is None else [broken, *nulls]
    return exp.or_(*parts) if parts else None


def _broken_expressions(
    rules: Rules, predicate: exp.Expr | None, computed: frozenset[str]
) -> exp.Expr | None:
    """Return the condition for rows that break a rule other than NOT NULL."""
    parts = [is_not_true(condition) for condition in rules.conditions.values()]
    parts += [
        exp.NullSafeNEQ(this=column(name), expression=exp.paren(value.copy()))
        for name, value in rules.generated.items()
        if name not in computed
    ]
    if predicate is not None:
        parts.append(is_not_true(predicate))
    return exp.or_(*parts) if parts else None


def generated_value(schema: StructType, rules: Rules, name: str) -> exp.Expr:
    """Return the expression that computes a generated column, with the column's type."""
    found = schema.find(name)
    assert found is not None
    return cast_to(rules.generated[name].copy(), found.type)


def _computed(schema: StructType, rules: Rules, name: str) -> exp.Expr:
    return exp.alias_(generated_value(schema, rules, name), name, quoted=True)


def combined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches to batches of at least `_ROWS` rows."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= _ROWS:
            yield _joined(held)
            held, count = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _invalid(stage: TableStage, count: int, shown: pa.Table, rules: Rules) -> InvalidDataError:
    return invalid_data_error(stage.name, count, shown, help_of(rules))


def help_of(rules: Rules) -> str:
    """Return the help text of the error for rows that break a rule."""
    names = [*rules.conditions, *rules.generated, *(rule.name for rule in rules.not_null)]
    listed = f"; the table has rules for: {', '.join(names)}." if names else "."
    return f"Correct or leave out these rows{listed}"


@lru_cache(maxsize=256)
def _rules(schema_string: str, constraints: tuple[tuple[str, str], ...]) -> Rules:
    schema = StructType.from_json(schema_string)
    conditions = {name: scalar(text, schema, escapes=True) for name, text in constraints}
    generated = {}
    for field in schema.fields:
        if INVARIANTS in field.metadata:
            conditions[field.name] = scalar(
                _invariant(field.metadata[INVARIANTS]), schema, escapes=True
            )
        if GENERATED in field.metadata:
            value = scalar(str(field.metadata[GENERATED]), schema, escapes=True)
            generated[field.name] = value
    return Rules(tuple(not_null_paths(schema)), conditions, generated)


def _invariant(text: object) -> str:
    """Return the SQL of an invariant, which is two levels deep in its JSON."""
    try:
        return str(json.loads(str(text))["expression"]["expression"])
    except (ValueError, KeyError, TypeError) as error:
        raise TxnLogSchemaError(
            f"not an invariant: {text!r}",
            help='An invariant has the form {"expression": {"expression": "a > 3"}}.',
        ) from error


def invalid_data_error(table: str, count: int, rows: pa.Table, advice: str) -> InvalidDataError:
    """Return the error for `count` invalid rows; `rows` are all or the first of these rows."""
    return InvalidDataError(
        f"Invalid data found: {count} rows failed validation check.\n"
        f"Preview of invalid data:\n\n{preview(rows.slice(0, PREVIEW_ROWS))}",
        table=table,
        help=advice,
    )


def preview(rows: pa.Table) -> str:
    """Format rows as an ASCII table.

    >>> import pyarrow as pa
    >>> print(preview(pa.table({"a": [-1, None], "b": ["x", "y"]})))
    +----+---+
    | a  | b |
    +----+---+
    | -1 | x |
    |    | y |
    +----+---+
    """
    lines = [rows.column_names]
    columns = [python_values(column) for column in rows.columns]
    lines += [[_text(value) for value in row] for row in zip(*columns, strict=True)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    frame = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    head, *body = [
        "| " + " | ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    return "\n".join([frame, head, frame, *body, frame])


def _text(value: Any) -> str:
    return _shown(value).replace("\n", " ")[:_WIDTH]


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case dict():
            return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(_shown(v) for v in value) + "]"
        case _:
            return str(value)
