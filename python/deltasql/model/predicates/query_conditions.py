"""Extract the conditions of a query that can be used for data skipping.

A condition is used only if it has the same meaning in every engine: it compares columns, in their
exact spelling, with literals of their type. Other conditions do not skip files. The engine that
runs the query evaluates all conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.model.predicates.parser import conjuncts
from deltasql.model.schema.schema import NANOSECOND_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.model.schema.schema import StructType

_SUPPORTED = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.In,
    exp.Between,
    exp.Is,
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Neg,
    exp.Boolean,
    exp.Null,
)
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_NUMBERS = _INTEGERS | {"double"}
_TEXTS = frozenset({"string", "date", "timestamp", "timestamp_ntz"}) | NANOSECOND_TYPES
_LONGEST = 18  # digits that fit into a 64-bit integer in every engine


def condition_on(query: exp.Expr, table: str, schema: StructType) -> exp.Expr | None:
    """Return a condition that is true for every row of a table that can affect a query's result.

    Return None if no such condition is found.

    >>> import sqlglot
    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> columns = StructType((StructField("id", "long"),))
    >>> query = sqlglot.parse_one("SELECT * FROM t WHERE t.id > 5 AND id % 2 = 0")
    >>> condition_on(query, "t", columns).sql()
    '"id" > 5'
    """
    named = [each for each in query.find_all(exp.Table) if each.name == table]
    if len(named) != 1 or any(cte.alias == table for cte in query.find_all(exp.CTE)):
        return None
    (only,) = named
    select = only.parent.parent if isinstance(only.parent, exp.From) else None
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or not _stands_alone(only):
        return None
    return plain_condition(where.this, schema, alias=only.alias_or_name)


def named_columns(query: exp.Expr) -> frozenset[str] | None:
    """Return a set of lower-case names that includes all columns that a query needs.

    Return None if the query can use a column without its name: with a star, a pattern or a
    position, or as part of a whole row.

    >>> import sqlglot
    >>> sorted(named_columns(sqlglot.parse_one("SELECT a FROM t WHERE B > 1")))
    ['a', 'b', 't']
    >>> named_columns(sqlglot.parse_one("SELECT to_json(t) FROM t")) is None
    True
    """
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        return None
    if query.find(exp.Columns, exp.Pivot, exp.PositionalColumn):
        return None
    if any(join.method.upper() == "NATURAL" for join in query.find_all(exp.Join)):
        return None
    if any(table.alias_column_names for table in query.find_all(exp.Table)):
        return None
    names, tables, standing_alone = set(), set(), set()
    for each in query.find_all(exp.Identifier):
        name = each.name.casefold()
        names.add(name)
        if isinstance(each.parent, exp.Table | exp.TableAlias):
            tables.add(name)
        elif each.arg_key not in ("table", "db", "catalog", "alias"):
            standing_alone.add(name)
    return None if tables & standing_alone else frozenset(names)


def plain_condition(condition: exp.Expr, schema: StructType, *, alias: str = "") -> exp.Expr | None:
    """Return the AND-ed conditions that mean the same in every engine; None if there are none."""
    kinds = {field.name: field.type for field in schema.fields}
    kept = [_unqualified(part) for part in conjuncts(condition) if _is_plain(part, alias, kinds)]
    return exp.and_(*kept, copy=False) if kept else None


def _stands_alone(table: exp.Table) -> bool:
    """Return whether the SELECT reads only this table, without joins or sampling."""
    given = {name for name, value in table.args.items() if value}
    select = table.parent.parent if table.parent is not None else None
    others = ("joins", "laterals", "pivots", "sample")
    return (
        given <= {"this", "alias"}
        and not table.alias_column_names
        and select is not None
        and not any(select.args.get(name) for name in others)
    )


def _is_plain(part: exp.Expr, alias: str, kinds: Mapping[str, object]) -> bool:
    used, literals = set(), []
    for node in part.walk():
        if not isinstance(node, _SUPPORTED) or node.args.get("symmetric"):
            return False
        if isinstance(node, exp.Column):
            if node.table not in ("", alias) or node.db or node.name not in kinds:
                return False
            used.add(kinds[node.name])
        elif isinstance(node, exp.Literal):
            literals.append(node)
    if any(literal.is_string for literal in literals):
        return used <= _TEXTS and all(literal.is_string for literal in literals)
    if literals:
        are_integers = all(_is_integer(literal.this) for literal in literals)
        return used <= _NUMBERS and (are_integers or not used & _INTEGERS)
    return used <= _NUMBERS | _TEXTS | {"boolean"}


def _is_integer(number: str) -> bool:
    return number.isdecimal() and len(number) <= _LONGEST


def _unqualified(part: exp.Expr) -> exp.Expr:
    return part.transform(
        lambda node: exp.column(node.name, quoted=True) if isinstance(node, exp.Column) else node
    )
