"""Data skipping of a MERGE: a predicate for the target files that source rows can match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.engine.inputs import python_rows, python_values
from deltasql.model.predicates.filters import filters_to_condition
from deltasql.model.predicates.parser import conjuncts
from deltasql.model.schema.schema import NANOSECOND_TYPES, decimal_type
from deltasql.operations.merge.plan import SOURCE, TARGET, MergePlan, relations_of
from deltasql.operations.sql.queries import alias, all_of, count_rows, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.base import Engine, Relation
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.model.schema.schema import DataType
    from deltasql.operations.table_stage import TableStage

_INTEGER_TYPES = {"byte", "short", "integer", "long"}
_ORDERED = {"string", "date", "timestamp", "timestamp_ntz", *NANOSECOND_TYPES}
_LISTED = 1000
"""Maximum number of values of a partition column to list; if there are more, use a range."""


@dataclass(frozen=True, slots=True)
class _Key:
    column: str
    value: exp.Expr


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The number of source rows, and the minimum and maximum of each key."""

    rows: int
    ranges: list[tuple[_Key, Any, Any]]


def source_facts(engine: Engine, plan: MergePlan, source: Relation) -> SourceFacts:
    """Compute the number of source rows and the range of each key with one query."""
    keys = list(_keys(plan.on))
    bounds = [
        alias(bound(this=key.value.copy()), f"{name}{n}")
        for n, key in enumerate(keys)
        for name, bound in (("low", exp.Min), ("high", exp.Max))
    ]
    query = select(alias(count_rows(), "rows"), *bounds, source=SOURCE)
    [found] = python_rows(engine.collect(engine.query(query, s=source)))
    ranges = [(key, found[f"low{n}"], found[f"high{n}"]) for n, key in enumerate(keys)]
    return SourceFacts(found["rows"], ranges)


def matching_predicate(
    target: TableStage, plan: MergePlan, source: Relation, facts: SourceFacts
) -> Predicate | None:
    """Return a predicate that is true for every target row that can match a source row.

    The predicate is false if no row can match. Return None if the merge condition does not restrict
    the target rows.
    """
    parts = [part for part in conjuncts(plan.on) if relations_of(part) == {TARGET}]
    conditions: list[exp.Expr] = [_unqualified(part) for part in parts]
    conditions += _key_conditions(target, source, facts)
    if not conditions:
        return None
    return target.predicate(all_of(*conditions))


def _key_conditions(target: TableStage, source: Relation, facts: SourceFacts) -> Iterator[exp.Expr]:
    for key, low, high in facts.ranges:
        if low is None:
            yield exp.false()
            continue
        filters: list[tuple[str, str, Any]] = [(key.column, ">=", low), (key.column, "<=", high)]
        if key.column in target.partition_columns:
            values = _distinct(target, key, source)
            if values is not None:
                filters = [(key.column, "in", values)]
        yield exp.paren(filters_to_condition(filters, target.schema, ()))


def _distinct(target: TableStage, key: _Key, source: Relation) -> list[Any] | None:
    query = select(
        alias(key.value.copy(), "value"), source=SOURCE, distinct=True, limit=_LISTED + 1
    )
    found = python_values(target.engine.collect(target.engine.query(query, s=source))["value"])
    return None if len(found) > _LISTED else [value for value in found if value is not None]


def _keys(on: exp.Expr) -> Iterator[_Key]:
    """Yield the target columns that must equal an expression of the source, with the expression."""
    for part in conjuncts(on):
        if not isinstance(part, exp.EQ):
            continue
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            column, value = mine.unnest(), other.unnest()
            if (
                isinstance(column, exp.Column)
                and column.table == TARGET
                and relations_of(value) == {SOURCE}
                and _same_order(column.meta.get("delta_type"), value.meta.get("delta_type"))
            ):
                yield _Key(column.name, value)


def _same_order(mine: DataType | None, other: DataType | None) -> bool:
    """Return whether both types have the same sort order, so that a range applies to both."""
    if not isinstance(mine, str) or not isinstance(other, str):
        return False
    if mine in _INTEGER_TYPES and other in _INTEGER_TYPES:
        return True
    return mine == other and (mine in _ORDERED or decimal_type(mine) is not None)


def _unqualified(part: exp.Expr) -> exp.Expr:
    plain = part.copy()
    for node in plain.find_all(exp.Column):
        node.set("table", None)
    return exp.paren(plain)
