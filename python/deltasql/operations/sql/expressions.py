"""Convert users' expressions (predicates, assigned values, constraints) for engines.

`model.predicates.parser` parses an expression and resolves its columns. This module adds the type
of every node, and rewrites the parts that engines would evaluate differently. The `flavour` matters
where deltalake's SQL (DataFusion) and delta-spark's SQL differ: `/` of integers, `concat` with a
null, the first index of an array. A timestamp without a zone is in UTC. Every engine renders the
resulting sqlglot tree in its own SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import PLANNING_ERROR
from deltasql.model.predicates.parser import (
    Flavour,
    PredicateDialect,
    Scope,
    column_path,
    parse_expression,
    resolve,
)
from deltasql.model.schema.schema import DataType, LeafColumn, StructType, resolve_column
from deltasql.operations.sql.collations import reject_collated
from deltasql.operations.sql.datafusion import (
    apply_datafusion_semantics,
    arrow_type,
    cast_date_number,
    timestamp_to_text,
)
from deltasql.operations.sql.queries import identifier
from deltasql.operations.sql.timestamps import in_utc, keep_nanoseconds
from deltasql.operations.sql.types import drops_digits, sql_type, truncated

if TYPE_CHECKING:
    from deltasql.model.predicates.predicate import Predicate

_TIMESTAMP = exp.DType.TIMESTAMPTZ
_CONDITIONS = (exp.DType.BOOLEAN, exp.DType.NULL, exp.DType.UNKNOWN)
# Nodes whose type is checked where a condition is expected, because engines accept numbers as
# conditions. Functions are not checked, because their inferred types are not reliable.
_ARITHMETIC = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_VALUES = (exp.Column, exp.Literal, *_ARITHMETIC, exp.Cast, exp.Case, exp.Coalesce)


def scalar(
    text: str,
    scope: Scope | StructType,
    *,
    flavour: Flavour = "datafusion",
    escapes: bool = False,
) -> exp.Expr:
    """Parse an expression, and qualify its columns by the relations of the scope.

    With `escapes`, a backslash is an escape character in DataFusion's SQL, too. This is the case
    for expressions that are stored in a table's metadata.

    >>> from deltasql.model.schema.schema import StructField
    >>> table = StructType((StructField("Id", "long"), StructField("at", "timestamp")))
    >>> scalar("id + 1", table).sql(dialect="duckdb")
    '"Id" + 1'
    >>> scalar("at < '2024-05-01'", Scope.of(table, "t")).sql(dialect="duckdb")
    '"t"."at" < CAST(\\'2024-05-01T00:00:00Z\\' AS TIMESTAMPTZ)'
    """
    within = Scope.of(scope) if isinstance(scope, StructType) else scope
    parsed = parse_expression(text, escapes=escapes or flavour == "spark")
    _reject_query(parsed, text)
    return with_semantics(resolve(parsed, within, text), flavour)


def parse_condition(text: str, scope: Scope, *, flavour: Flavour = "datafusion") -> exp.Expr:
    """Parse a condition; raise for an expression that is not boolean.

    >>> from deltasql.model.schema.schema import StructField
    >>> table = StructType((StructField("id", "long"),))
    >>> parse_condition("id > 1", Scope.of(table, "t")).sql(dialect="duckdb")
    '"t"."id" > 1'
    """
    return _boolean(scalar(text, scope, flavour=flavour), text)


def condition_of(predicate: Predicate, relation: str = "") -> exp.Expr:
    """Return a predicate as a condition for engines; raise if it is not boolean.

    If a relation is given, the columns are qualified by it.

    >>> from deltasql.model.predicates.predicate import parse_predicate
    >>> from deltasql.model.schema.schema import StructField
    >>> table = StructType((StructField("id", "long"),))
    >>> condition_of(parse_predicate("id > 1", table), "t").sql(dialect="duckdb")
    '"t"."id" > 1'
    """
    _reject_query(predicate.expression, predicate.sql)
    resolved = predicate.expression.copy()
    for column in resolved.find_all(exp.Column) if relation else ():
        column.set("table", identifier(relation))
    return _boolean(with_semantics(resolved, predicate.flavour), predicate.sql)


def with_semantics(resolved: exp.Expr, flavour: Flavour) -> exp.Expr:
    """Add types to a resolved expression; rewrite it so that all engines return the same result."""
    reject_collated(resolved)
    kind = resolved.meta.get("delta_type")
    if isinstance(resolved, exp.Column) and kind is not None:  # common: every value of UPDATE SET *
        resolved.type = sql_type(kind)
        return resolved
    return _with_explicit_semantics(keep_nanoseconds(_with_types(resolved)), flavour)


def _reject_query(parsed: exp.Expr, text: str) -> None:
    if parsed.find(exp.Query) is not None:
        raise TxnLogSchemaError(
            f"the expression {text!r} contains a query",
            help="Run the query first, and list its values or join its result.",
        )


def _boolean(condition: exp.Expr, text: str) -> exp.Expr:
    """Return the condition; raise for an expression that is not boolean."""
    kind = condition.type
    is_value = isinstance(condition.unnest(), _VALUES)
    if is_value and kind is not None and kind.this not in _CONDITIONS:
        raise TxnLogSchemaError(
            f"Cannot create filter with non-boolean predicate {text!r} "
            f"returning {arrow_type(kind)}",
            column=condition.name if isinstance(condition, exp.Column) else None,
            prefix=PLANNING_ERROR,
            help="Write a condition, such as a comparison with a value.",
        )
    return condition


def assigned_column(name: str, scope: Scope) -> LeafColumn | None:
    """Return the column that the left side of an assignment names; None if it is unknown."""
    for relation, schema in scope.relations.items():
        whole = resolve_column(schema, [name])
        if whole is not None:
            return whole
        found = scope.find(_path_of(name))
        if found is not None and found[0] == relation:
            return found[1]
    return None


def assigned_path(name: str, scope: Scope) -> list[str]:
    """Return the path on the left side of an assignment, without the alias."""
    column = assigned_column(name, scope)
    if column is not None:
        return list(column.path)
    path = _path_of(name)
    known = {alias.casefold() for alias in scope.aliases}
    return path[1:] if len(path) > 1 and path[0].casefold() in known else path


def _with_types(resolved: exp.Expr) -> exp.Expr:
    """Infer the types of all nodes from the types of the columns."""
    # sqlglot infers the types of columns only in a query. Here there is only an expression, so
    # replace each column by a cast to its type, and put the columns back afterwards.
    wrapper = exp.Paren(this=resolved)
    for node in list(wrapper.walk()):
        kind: DataType | None = node.meta.get("delta_type")
        if kind is not None:
            stand_in = exp.Cast(this=exp.Placeholder(), to=sql_type(kind))
            stand_in.meta["column"] = node
            node.replace(stand_in)
    annotate_types(wrapper, dialect=PredicateDialect)
    for node in list(wrapper.find_all(exp.Cast)):
        column = node.meta.get("column")
        if column is not None:
            column.type = node.to
            node.replace(column)
    inner: exp.Expr = wrapper.this
    inner.pop()
    return inner


def _with_explicit_semantics(expression: exp.Expr, flavour: Flavour) -> exp.Expr:
    """Rewrite the parts of an expression that engines would evaluate differently."""
    wrapper = exp.Paren(this=expression)
    for node in list(wrapper.walk()):
        if isinstance(node, exp.Cast) and drops_digits(node):
            node.set("this", truncated(node.this))
        is_datafusion = flavour == "datafusion"
        made = (cast_date_number(node) or timestamp_to_text(node)) if is_datafusion else None
        if made is not None:
            node.replace(made)
        elif isinstance(node, exp.TryCast) and not node.args.get("safe"):
            strict = exp.Cast(this=node.this, to=node.to)
            strict.type = node.to
            node.replace(strict)
        elif isinstance(node, exp.Literal) and node.is_string:
            _add_utc(node)
        elif isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
            _add_escape(node)
        elif is_datafusion:
            apply_datafusion_semantics(node)
    inner: exp.Expr = wrapper.this
    inner.pop()
    return inner


def _add_utc(literal: exp.Literal) -> None:
    """Add UTC to a string without a zone if it is compared with, or cast to, a timestamp."""
    text = in_utc(literal.this)
    if text is None:
        return
    parent = literal.parent
    if isinstance(parent, exp.Cast):
        if parent.to.this == _TIMESTAMP:
            literal.replace(exp.Literal.string(text))
        return
    if isinstance(parent, exp.Binary | exp.Between | exp.In):
        sides = [side for side in parent.iter_expressions() if side != literal]
        if any(side.type is not None and side.type.this == _TIMESTAMP for side in sides):
            timestamp = exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=_TIMESTAMP))
            timestamp.type = timestamp.to
            literal.replace(timestamp)


def _add_escape(like: exp.Expr) -> None:
    """Add ESCAPE to a pattern with a backslash, because some engines have no default escape."""
    pattern = like.expression
    if isinstance(pattern, exp.Literal) and "\\" in pattern.this:
        inner = like.copy()
        like.replace(exp.Escape(this=inner, expression=exp.Literal.string("\\")))


def _path_of(name: str) -> list[str]:
    try:
        return column_path(parse_expression(name, escapes=True)) or [name]
    except TxnLogSchemaError:
        return [name]
