"""The rules of a table that every new row must keep: NOT NULL, constraints, generated columns.

Rows come batch by batch, as Arrow, or as a relation of an engine. NOT NULL of Arrow data needs
no engine; an expression is evaluated by DuckDB, or by the engine that has the relation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.choose import open_engine
from deltasql.exceptions import InvalidDataError, TxnLogSchemaError, TxnLogTransactionError
from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import StructType
from deltasql.operations.preview import preview
from deltasql.operations.rules.not_null import NotNull, not_null_paths, null_condition, null_rows
from deltasql.operations.rules.schema_merge import GENERATED
from deltasql.operations.sql.expressions import scalar
from deltasql.operations.sql.types import cast_to, column, is_not_true

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deltasql.engine.base import Engine, Relation
    from deltasql.operations.target import TableStage

INVARIANTS = "delta.invariants"
_SHOWN = 5
_ROWS = 100_000
"""Rows that are looked at together: a query for every small batch would cost more."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the schema and the properties of a table ask of a row."""

    not_null: tuple[NotNull, ...]
    conditions: Mapping[str, exp.Expr]
    """Conditions that must be true, by the names of their constraints and columns."""
    generated: Mapping[str, exp.Expr]
    """How columns are computed, by name."""

    def __bool__(self) -> bool:
        return bool(self.not_null or self.conditions or self.generated)


def rules_of(target: TableStage) -> Rules:
    """Return the rules of a table as it is at this moment, staged changes included."""
    constraints = TableProperties(target.configuration).constraints
    return _rules(target.metadata.schema_string, tuple(sorted(constraints.items())))


def refuse_append_only(target: TableStage) -> None:
    """Refuse to take rows out of a table that only grows, before any file is written."""
    if TableProperties(target.configuration).append_only:
        raise TxnLogTransactionError(
            "The transaction includes Remove action with data change but "
            "Delta table is append-only",
            table=target.name,
            help="Set delta.appendOnly to false to delete or change rows.",
        )


def generated_columns(target: TableStage) -> Sequence[str]:
    """Name the columns that are computed when rows come without them."""
    return list(rules_of(target).generated)


def checked(
    target: TableStage,
    relation: Relation,
    *,
    engine: Engine | None = None,
    predicate: exp.Expr | None = None,
) -> Relation:
    """Return the same rows, or an error that shows some of those that break a rule.

    `predicate` is one more condition that must be true. The rows are computed once.
    """
    rules = rules_of(target)
    broken = _broken_condition(rules, predicate, frozenset(), in_sql=True)
    if broken is None:
        return relation
    runner = engine or target.engine
    kept = runner.keep(relation)
    rows = exp.select(*(column(name) for name in target.schema.names)).from_("rows").where(broken)
    count = exp.select(exp.Count(this=exp.Star())).from_("rows").where(broken)
    found = runner.collect(runner.query(count, rows=kept)).column(0)[0].as_py()
    if found:
        shown = runner.collect(runner.query(rows.limit(_SHOWN), rows=kept))
        raise _invalid(target, int(found), shown, rules)
    return kept


def with_generated(
    target: TableStage, relation: Relation, *, engine: Engine | None = None
) -> Relation:
    """Add the generated columns that rows lack, computed from the others."""
    rules = rules_of(target)
    missing = [name for name in rules.generated if name not in relation.columns]
    if not missing:
        return relation
    query = exp.select(
        *(column(name) for name in relation.columns),
        *(_computed(target.schema, rules, name) for name in missing),
    ).from_("rows")
    return (engine or target.engine).query(query, rows=relation)


def checked_batches(
    target: TableStage,
    batches: Iterable[pa.RecordBatch],
    *,
    generate: Sequence[str] = (),
    predicate: exp.Expr | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches that keep the rules; `generate` names columns to compute first."""
    rules = rules_of(target)
    needs_engine = bool(rules.conditions or rules.generated or predicate is not None)
    for batch in _gathered(batches) if needs_engine else batches:
        if not needs_engine:
            _refuse_nulls(target, rules, batch)
            yield batch
            continue
        # An engine of its own: the one of the transaction may be waiting for this very batch,
        # and would keep it for as long as the transaction lasts.
        with open_engine(target.config, name="duckdb") as engine:
            whole = _generated(target, rules, batch, generate, engine) if generate else batch
            _refuse_nulls(target, rules, whole)
            _refuse_broken(target, rules, whole, predicate, frozenset(generate), engine)
        yield whole


def _refuse_nulls(target: TableStage, rules: Rules, batch: pa.RecordBatch) -> None:
    found = None
    for rule in rules.not_null:
        rows = null_rows(batch, rule)
        if rows is not None:
            found = rows if found is None else pc.or_(found, rows)
    if found is not None:
        broken = batch.filter(found)
        raise _invalid(target, broken.num_rows, pa.Table.from_batches([broken]), rules)


def _refuse_broken(
    target: TableStage,
    rules: Rules,
    batch: pa.RecordBatch,
    predicate: exp.Expr | None,
    computed: frozenset[str],
    engine: Engine,
) -> None:
    broken = _broken_condition(rules, predicate, computed, in_sql=False)
    if broken is None:
        return
    rows = exp.select(exp.Star()).from_("rows").where(broken)
    found = engine.collect(engine.query(rows, rows=engine.rows(batch)))
    if found.num_rows:
        raise _invalid(target, found.num_rows, found, rules)


def _generated(
    target: TableStage, rules: Rules, batch: pa.RecordBatch, missing: Sequence[str], engine: Engine
) -> pa.RecordBatch:
    """Compute columns; the batch has them as nulls, in their places."""
    schema = target.schema
    columns = [
        _computed(schema, rules, name) if name in missing else column(name)
        for name in batch.schema.names
    ]
    rows = engine.rows(batch.select([n for n in batch.schema.names if n not in missing]))
    table = engine.collect(engine.query(exp.select(*columns).from_("rows"), rows=rows))
    (whole,) = table.cast(batch.schema).combine_chunks().to_batches() or [batch.slice(0, 0)]
    return whole


def _broken_condition(
    rules: Rules, predicate: exp.Expr | None, computed: frozenset[str], *, in_sql: bool
) -> exp.Expr | None:
    """Return what is true for a row that breaks a rule; unknown counts as broken."""
    parts = [is_not_true(condition) for condition in rules.conditions.values()]
    parts += [
        exp.NullSafeNEQ(this=column(name), expression=exp.paren(value.copy()))
        for name, value in rules.generated.items()
        if name not in computed
    ]
    if predicate is not None:
        parts.append(is_not_true(predicate))
    if in_sql:
        parts += [null_condition(rule) for rule in rules.not_null]
    return exp.or_(*parts) if parts else None


def _computed(schema: StructType, rules: Rules, name: str) -> exp.Expr:
    found = schema.find(name)
    assert found is not None
    return exp.alias_(cast_to(rules.generated[name].copy(), found.type), name, quoted=True)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def _invalid(target: TableStage, count: int, shown: pa.Table, rules: Rules) -> InvalidDataError:
    names = [*rules.conditions, *rules.generated, *(rule.name for rule in rules.not_null)]
    return InvalidDataError(
        f"Invalid data found: {count} rows failed validation check.\n"
        f"Preview of invalid data:\n\n{preview(shown.slice(0, _SHOWN))}",
        table=target.name,
        help="Correct or leave out these rows"
        + (f"; the table has rules for: {', '.join(names)}." if names else "."),
    )


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
    """Return the SQL of an invariant, which is wrapped twice in JSON."""
    try:
        return str(json.loads(str(text))["expression"]["expression"])
    except (ValueError, KeyError, TypeError) as error:
        raise TxnLogSchemaError(
            f"not an invariant: {text!r}",
            help='It looks like {"expression": {"expression": "a > 3"}}.',
        ) from error
