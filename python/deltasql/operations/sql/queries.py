"""Builders for sqlglot queries that do not copy their arguments.

sqlglot's own builders copy every argument, so a merge would copy 1,500 nodes. A node that is passed
to a builder of this module becomes part of the new node. Callers must copy a node that they use
twice.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def identifier(name: str) -> exp.Identifier:
    """Return a quoted identifier."""
    return exp.Identifier(this=name, quoted=True)


def column(name: str, relation: str | None = None) -> exp.Column:
    """Return a column, qualified by its relation if one is given.

    >>> column("the id", "t").sql(dialect="spark")
    '`t`.`the id`'
    """
    if relation is None:
        return exp.Column(this=identifier(name))
    return exp.Column(this=identifier(name), table=identifier(relation))


def select(
    *columns: exp.Expr,
    source: exp.Expr | str,
    joins: Sequence[exp.Join] = (),
    where: exp.Expr | None = None,
    group_by: Sequence[exp.Expr] = (),
    distinct: bool = False,
    limit: int | None = None,
) -> exp.Select:
    """Return a SELECT from a relation, which is given as a node or by name.

    >>> select(column("id", "t"), source="t", where=equal(column("id"), number(1))).sql("duckdb")
    'SELECT "t"."id" FROM t WHERE "id" = 1'
    """
    found = exp.Select(
        expressions=list(columns),
        from_=exp.From(this=table(source) if isinstance(source, str) else source),
    )
    if joins:
        found.set("joins", list(joins))
    if where is not None:
        found.set("where", exp.Where(this=where))
    if group_by:
        found.set("group", exp.Group(expressions=list(group_by)))
    if distinct:
        found.set("distinct", exp.Distinct())
    if limit is not None:
        found.set("limit", exp.Limit(expression=number(limit)))
    return found


def table(name: str, alias: str | None = None) -> exp.Table:
    """Return a reference to a relation, with an optional alias."""
    found = exp.Table(this=exp.Identifier(this=name, quoted=False))
    if alias is not None:
        found.set("alias", exp.TableAlias(this=exp.Identifier(this=alias, quoted=False)))
    return found


def subquery(query: exp.Query, alias: str) -> exp.Subquery:
    """Return a query as a relation of another query."""
    name = exp.TableAlias(this=exp.Identifier(this=alias, quoted=False))
    return exp.Subquery(this=query, alias=name)


def join(source: exp.Expr | str, on: exp.Expr, *, left: bool = False) -> exp.Join:
    """Return an inner join, or a left outer join."""
    relation = table(source) if isinstance(source, str) else source
    return exp.Join(this=relation, on=on, **({"side": "LEFT"} if left else {"kind": "INNER"}))


def union(one: exp.Query, other: exp.Query) -> exp.Union:
    """Return UNION ALL of two queries."""
    return exp.Union(this=one, expression=other, distinct=False)


def alias(value: exp.Expr, name: str) -> exp.Alias:
    """Return a value with a column name."""
    return exp.Alias(this=value, alias=identifier(name))


def case(
    branches: Iterable[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None = None
) -> exp.Expr:
    """Return a CASE over (condition, value) pairs; if there are no pairs, the default or null."""
    whens = [exp.If(this=condition, true=value) for condition, value in branches]
    if not whens:
        return exp.Null() if default is None else default
    found = exp.Case(ifs=whens)
    if default is not None:
        found.set("default", default)
    return found


def number(value: int) -> exp.Literal:
    """Return an integer literal."""
    return exp.Literal(this=str(value), is_string=False)


def equal(one: exp.Expr, other: exp.Expr) -> exp.EQ:
    """Return the condition that two values are equal."""
    return exp.EQ(this=one, expression=other)


def is_null(value: exp.Expr) -> exp.Is:
    """Return the condition that a value is null."""
    return exp.Is(this=value, expression=exp.Null())


def is_not_null(value: exp.Expr) -> exp.Not:
    """Return the condition that a value is not null."""
    return exp.Not(this=is_null(value))


def is_true(condition: exp.Expr) -> exp.Expr:
    """Return a condition that is false, not null, where the given condition is null."""
    return exp.Coalesce(this=condition.copy(), expressions=[exp.false()])


def is_not_true(condition: exp.Expr) -> exp.Expr:
    """Return a condition that is true where the given condition is false or null."""
    return exp.Not(this=is_true(condition))


def all_of(*conditions: exp.Expr) -> exp.Expr:
    """Join conditions with AND.

    >>> all_of(is_null(column("a")), any_of(column("b"), column("c"))).sql("duckdb")
    '"a" IS NULL AND ("b" OR "c")'
    """
    return _connected(exp.And, conditions)


def any_of(*conditions: exp.Expr) -> exp.Expr:
    """Join conditions with OR."""
    return _connected(exp.Or, conditions)


def count_rows() -> exp.Count:
    """Return COUNT(*)."""
    return exp.Count(this=exp.Star())


def same(name: str, one: str, other: str) -> exp.EQ:
    """Return the condition that a column is equal in two relations."""
    return equal(column(name, one), column(name, other))


def _connected(kind: type[exp.Connector], conditions: Sequence[exp.Expr]) -> exp.Expr:
    parts = [exp.Paren(this=e) if isinstance(e, exp.Connector) else e for e in conditions]
    return reduce(lambda one, other: kind(this=one, expression=other), parts)
