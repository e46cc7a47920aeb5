"""The normal form of a condition, as deltalake records predicates in commitInfo.

Columns come before values, short lists and ranges become comparisons, NOT is moved inwards, and
function names are in lower case. The normal form is only for display. Engines evaluate the result
of `expressions`.
"""

from __future__ import annotations

import re
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from deltasql.model.predicates.parser import (
    DataFusionDialect,
    PredicateDialect,
    Scope,
    parse_expression,
)

if TYPE_CHECKING:
    from deltasql.model.schema.schema import StructType

_LONGEST_CHAIN = 3
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.GT: exp.LTE,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.LTE: exp.GT,
}
_WITH_NOT_INSIDE = {exp.Is: "IS", exp.In: "IN", exp.Like: "LIKE", exp.ILike: "ILIKE"}


class _History(PredicateDialect):
    class Generator(SparkGenerator):
        def neq_sql(self, expression: exp.NEQ) -> str:
            return self.binary(expression, "!=")

        def boolean_sql(self, expression: exp.Boolean) -> str:
            return "true" if expression.this else "false"

        def is_sql(self, expression: exp.Is) -> str:
            # In IS TRUE, TRUE is part of the operator, not a value.
            return f"{self.sql(expression, 'this')} IS {self.sql(expression, 'expression').upper()}"

        def not_sql(self, expression: exp.Not) -> str:
            inner = expression.this
            word = _WITH_NOT_INSIDE.get(type(inner))
            if word is None:
                return f"NOT {self.sql(inner)}"
            subject = self.sql(inner, "this")
            after = self.sql(inner).removeprefix(f"{subject} {word} ")
            return f"{subject} {'IS NOT' if word == 'IS' else f'NOT {word}'} {after}"


class _Constraint(_History):
    class Generator(_History.Generator):
        def identifier_sql(self, expression: exp.Identifier) -> str:
            name = expression.name
            if not expression.args.get("quoted") or _PLAIN_NAME.fullmatch(name):
                return name
            escaped = name.replace('"', '""')
            return f'"{escaped}"'


class _Unescaped(_Constraint):
    class Tokenizer(DataFusionDialect.Tokenizer):
        """A tokenizer without escapes, so that a backslash is written unchanged."""


@lru_cache(maxsize=256)
def normal(text: str, schema: StructType | None = None, *, escapes: bool = False) -> str:
    """Return a condition in the form that is recorded in the commitInfo.

    With a schema, two columns of different types are not swapped. Set `escapes` for Spark's SQL, in
    which a backslash is an escape character.

    >>> normal("p='b' and 3 < x")
    "p = 'b' AND x > 3"
    >>> normal("id in (1, 2) and not `Full Name` is null")
    '(id = 1 OR id = 2) AND "Full Name" IS NOT NULL'
    """
    parsed = parse_expression(text, escapes=escapes)
    return _simple(parsed, schema).sql(dialect=_Unescaped, normalize_functions="lower")


@lru_cache(maxsize=256)
def normal_part(text: str, alias: str) -> str | None:
    """Return the AND-ed conditions that use only columns of one alias; None if there are none.

    >>> normal_part("s.id = t.id and t.p = 'a' and t.n between 1 and 2", "t")
    "p = 'a' AND n >= 1 AND n <= 2"
    """
    whole = _simple(parse_expression(text), None)
    parts = list(whole.flatten()) if isinstance(whole, exp.And) else [whole]
    own = [each.unnest().copy() for each in parts if _is_of(each.unnest(), alias)]
    for column in (found for each in own for found in each.find_all(exp.Column)):
        column.set("table", None)
    if not own:
        return None
    joined = own[0] if len(own) == 1 else _joined(exp.And, own)
    return joined.sql(dialect=_Unescaped, normalize_functions="lower")


def normal_constraint(text: str, schema: StructType | None = None, *, escapes: bool = False) -> str:
    """Return a CHECK constraint in its normal form, with double quotes as in deltalake.

    Backslashes are escaped in the result. Set `escapes` if they are already escaped in `text`.

    >>> normal_constraint("not `Full Name` is null")
    '"Full Name" IS NOT NULL'
    """
    parsed = parse_expression(text, escapes=escapes)
    return _simple(parsed, schema).sql(dialect=_Constraint, normalize_functions="lower")


def _simple(node: exp.Expr, schema: StructType | None) -> exp.Expr:
    plain = node.unnest()
    if isinstance(plain, exp.Not):
        return _negated(plain.this, schema)
    if isinstance(plain, exp.And | exp.Or):
        return _joined(type(plain), [_simple(each, schema) for each in plain.flatten()])
    if isinstance(plain, exp.Between):
        low, high = plain.args["low"], plain.args["high"]
        return _joined(
            exp.And, [_compared(exp.GTE, plain.this, low), _compared(exp.LTE, plain.this, high)]
        )
    if isinstance(plain, exp.In) and _is_short(plain):
        return _joined(exp.Or, [_compared(exp.EQ, plain.this, each) for each in plain.expressions])
    if type(plain) in _MIRRORED:
        return _sides(plain, schema)
    return plain


def _negated(node: exp.Expr, schema: StructType | None) -> exp.Expr:
    plain = node.unnest()
    if isinstance(plain, exp.Not):
        return _simple(plain.this, schema)
    if isinstance(plain, exp.And | exp.Or):
        other = exp.Or if isinstance(plain, exp.And) else exp.And
        return _joined(other, [_negated(each, schema) for each in plain.flatten()])
    if isinstance(plain, exp.Between) or (isinstance(plain, exp.In) and _is_short(plain)):
        return _negated(_simple(plain, schema), schema)
    opposite = _NEGATED.get(type(plain))
    if opposite is not None:
        return _sides(opposite(this=plain.this, expression=plain.expression), schema)
    if isinstance(plain, exp.Boolean):
        return exp.false() if plain.this else exp.true()
    inner = plain if not isinstance(plain, exp.Binary | exp.Unary) else _in_parentheses(plain)
    return exp.Not(this=inner)


def _in_parentheses(plain: exp.Expr) -> exp.Expr:
    return plain if type(plain) in _WITH_NOT_INSIDE else exp.paren(plain)


def _sides(comparison: exp.Expr, schema: StructType | None) -> exp.Expr:
    """Put columns before values; sort two columns by name in descending order."""
    left, right = comparison.this.unnest(), comparison.expression.unnest()
    kind = type(comparison)
    if (_is_value(left) and not _is_value(right)) or _is_later(right, left, schema):
        left, right, kind = right, left, _MIRRORED[kind]
    if isinstance(left, exp.Column) and isinstance(right, exp.Boolean) and kind is exp.EQ:
        return left.copy() if right.this else exp.Not(this=left.copy())
    return _compared(kind, left, right)


def _is_later(one: exp.Expr, other: exp.Expr, schema: StructType | None) -> bool:
    """Return whether both are columns of the same type and `one` sorts after `other` by name."""
    columns = [side for side in (other, one) if isinstance(side, exp.Column)]
    return len(columns) == 2 and columns[0].sql() < columns[1].sql() and _same_type(columns, schema)


def _same_type(columns: list[exp.Column], schema: StructType | None) -> bool:
    if schema is None:
        return True
    found = [Scope.of(schema).find([each.name for each in side.parts]) for side in columns]
    kinds = [each[1].type for each in found if each is not None]
    return len(kinds) < len(found) or kinds[0] == kinds[1]


def _is_of(part: exp.Expr, alias: str) -> bool:
    if isinstance(part, exp.Boolean):
        return not part.this
    columns = list(part.find_all(exp.Column))
    is_comparison = type(part) in _MIRRORED or isinstance(part, exp.Or | exp.In)
    return is_comparison and all(
        len(each.parts) == 2 and each.table.casefold() == alias.casefold() for each in columns
    )


def _joined(kind: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    """Join parts by AND or OR, without duplicates, `AND true` and `OR false`."""
    neutral = kind is exp.And
    kept: list[exp.Expr] = []
    for part in parts:
        for each in part.flatten() if isinstance(part, kind) else [part]:
            if not (isinstance(each, exp.Boolean) and bool(each.this) is neutral):
                kept.append(each)
    unique = [each for index, each in enumerate(kept) if each not in kept[:index]]
    if not unique:
        return exp.true() if neutral else exp.false()
    shown = [exp.paren(each) if neutral and isinstance(each, exp.Or) else each for each in unique]
    return reduce(lambda one, other: kind(this=one, expression=other), shown)


def _compared(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return kind(this=left.unnest().copy(), expression=right.unnest().copy())


def _is_short(listed: exp.In) -> bool:
    values = listed.expressions
    if len(values) == 1:
        return True
    return 0 < len(values) <= _LONGEST_CHAIN and isinstance(listed.this.unnest(), exp.Column)


def _is_value(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal | exp.Boolean | exp.Null)
