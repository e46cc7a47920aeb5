"""Parse SQL expressions of users against a table: predicates, values to set, constraints.

The text is SQL of deltalake (DataFusion) or of delta-spark. One grammar parses both, and `flavour`
decides where they differ: `/` of integers, `concat` with a null, the first index of an array.
Column names are case-insensitive. A timestamp without a zone is UTC. The result is a sqlglot tree
that every engine renders in its own SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import AMBIGUOUS_ERROR, FIELD_ERROR, PARSER_ERROR, PLANNING_ERROR
from deltasql.model.predicates.predicate import (
    DataFusionDialect,
    PredicateDialect,
    parse_expression,
    parser_message,
)
from deltasql.model.predicates.pruning import column_path
from deltasql.model.schema.schema import DataType, LeafColumn, StructType, nearest, resolve_column
from deltasql.operations.sql.datafusion import (
    apply_datafusion_semantics,
    arrow_type,
    cast_date_number,
    timestamp_to_text,
)
from deltasql.operations.sql.queries import field_of
from deltasql.operations.sql.timestamps import in_utc, keep_nanoseconds
from deltasql.operations.sql.types import drops_digits, sql_type, truncated

Flavour: TypeAlias = Literal["datafusion", "spark"]
_TIMESTAMP = exp.DType.TIMESTAMPTZ
_CONDITIONS = (exp.DType.BOOLEAN, exp.DType.NULL, exp.DType.UNKNOWN)
# Engines accept numbers as conditions, so these are checked; types of functions are uncertain.
_ARITHMETIC = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_VALUES = (exp.Column, exp.Literal, *_ARITHMETIC, exp.Cast, exp.Case, exp.Coalesce)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may use.

    `relations` has the schemas by the name in the query; `aliases` maps aliases of the user to
    these names.
    """

    relations: Mapping[str, StructType]
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, relation: str = "") -> Scope:
        """Return the scope of one relation; columns are unqualified if its name is empty."""
        return cls({relation: schema})

    def find(self, path: list[str]) -> tuple[str, LeafColumn, list[str]] | None:
        """Return the relation and the column of a path, and the rest of the path: keys of a map."""
        by_alias = {alias.casefold(): name for alias, name in self.aliases.items()}
        named = by_alias.get(path[0].casefold()) if len(path) > 1 else None
        if named is not None and named in self.relations:
            found = _column_or_outer(self.relations[named], path[1:])
            if found is not None:
                return named, found, path[1 + len(found.path) :]
        everywhere = [
            (name, found, path[len(found.path) :])
            for name, schema in self.relations.items()
            if (found := _column_or_outer(schema, path)) is not None
        ]
        if len(everywhere) > 1:
            shown = ".".join(path)
            known = ", ".join(f"{alias}.{path[-1]}" for alias in self.aliases)
            raise TxnLogSchemaError(
                f"Ambiguous reference to unqualified field {shown}: more than one side has it",
                column=shown,
                prefix=AMBIGUOUS_ERROR,
                help=f"Qualify the column: {known}." if known else "Qualify the column.",
            )
        return everywhere[0] if everywhere else None

    def unknown(self, path: list[str], text: str) -> TxnLogSchemaError:
        """Return the error for an unknown column."""
        shown = ".".join(path)
        alias_of = {name: alias for alias, name in self.aliases.items()}
        if len(self.relations) == 1 or not alias_of.keys() >= self.relations.keys():
            alias_of = {}
        names = [
            f"{alias_of[relation]}.{name}" if alias_of else name
            for relation, schema in self.relations.items()
            for name in schema.names
        ]
        near = nearest(shown if alias_of else path[-1], names)
        who = "neither side has" if alias_of else "the table does not have"
        return TxnLogSchemaError(
            f"{f'No field named {shown}. {near}'.rstrip()}\nValid fields are {', '.join(names)}.",
            column=shown,
            prefix=FIELD_ERROR,
            help=f"In {text!r}: {who} it.",
        )


def scalar(
    text: str,
    scope: Scope | StructType,
    *,
    flavour: Flavour = "datafusion",
    escapes: bool = False,
) -> exp.Expr:
    """Parse an expression; its columns are qualified by the relations of the scope.

    With `escapes` a backslash is an escape character also in DataFusion's SQL, as in expressions
    that are stored in a table's metadata.

    >>> from deltasql.model.schema.schema import StructField
    >>> table = StructType((StructField("Id", "long"), StructField("at", "timestamp")))
    >>> scalar("id + 1", table).sql(dialect="duckdb")
    '"Id" + 1'
    >>> scalar("at < '2024-05-01'", Scope.of(table, "t")).sql(dialect="duckdb")
    '"t"."at" < CAST(\\'2024-05-01T00:00:00Z\\' AS TIMESTAMPTZ)'
    """
    within = Scope.of(scope) if isinstance(scope, StructType) else scope
    parsed = parse(text, escapes=escapes or flavour == "spark")
    query = parsed.find(exp.Query)
    if query is not None:
        raise TxnLogSchemaError(
            f"the expression {text!r} has a query in it",
            help="Run the query first, and list its values or join its result.",
        )
    resolved = _resolve(parsed, within, text)
    kind = resolved.meta.get("delta_type")
    if isinstance(resolved, exp.Column) and kind is not None:  # common: every value of UPDATE SET *
        resolved.type = sql_type(kind)
        return resolved
    return _with_explicit_semantics(keep_nanoseconds(_with_types(resolved)), flavour)


def parse_condition(
    text: str, scope: Scope | StructType, *, flavour: Flavour = "datafusion"
) -> exp.Expr:
    """Parse a condition; raise for an expression that is not boolean.

    >>> from deltasql.model.schema.schema import StructField
    >>> parse_condition("id > 1", StructType((StructField("id", "long"),))).sql(dialect="duckdb")
    '"id" > 1'
    """
    found = scalar(text, scope, flavour=flavour)
    kind = found.type
    is_value = isinstance(found.unnest(), _VALUES)
    if is_value and kind is not None and kind.this not in _CONDITIONS:
        raise TxnLogSchemaError(
            f"Cannot create filter with non-boolean predicate {text!r} "
            f"returning {arrow_type(kind)}",
            column=found.name if isinstance(found, exp.Column) else None,
            prefix=PLANNING_ERROR,
            help="Write a condition, such as a comparison with a value.",
        )
    return found


def parse(text: str, *, escapes: bool = False) -> exp.Expr:
    """Parse one SQL expression without resolving its columns.

    With `escapes` a backslash is an escape character.
    """
    try:
        return parse_expression(text, PredicateDialect if escapes else DataFusionDialect)
    except SqlglotError as error:
        raise TxnLogSchemaError(
            parser_message(text, error),
            prefix=PARSER_ERROR,
            help="Write one SQL expression such as: amount * 2, or: day >= '2024-05-01'.",
        ) from error


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


def columns_of(expression: exp.Expr) -> Iterator[tuple[str, str]]:
    """Yield the relation and the name of every column in a resolved expression."""
    for node in expression.find_all(exp.Column):
        yield node.table, node.name


def conjuncts(expression: exp.Expr) -> list[exp.Expr]:
    """Return the parts that are joined by AND, also inside parentheses."""
    plain = expression.unnest()
    if isinstance(plain, exp.And):
        return [part for side in (plain.this, plain.expression) for part in conjuncts(side)]
    return [plain]


def _resolve(parsed: exp.Expr, scope: Scope, text: str) -> exp.Expr:
    """Replace every column by one with its relation, its exact name and its type."""
    holder = exp.Paren(this=parsed)
    for node in list(holder.find_all(exp.Column)):
        if isinstance(node.this, exp.Star):
            continue
        reference: exp.Expr = node
        while isinstance(reference.parent, exp.Dot) and column_path(reference.parent):
            reference = reference.parent
        path = column_path(reference)
        found = scope.find(path)
        if found is None and len(path) == 1 and _is_double_quoted(node, text):
            reference.replace(exp.Literal.string(path[0]))
            continue
        if found is None:
            raise scope.unknown(path, text)
        relation, leaf, left = found
        resolved = field_of(leaf.path, relation or None)
        for name in left:  # the key of a map
            resolved = exp.Bracket(this=resolved, expressions=[exp.Literal.string(name)])
        resolved.meta["delta_type"] = leaf.type if not left else None
        reference.replace(resolved)
    inner: exp.Expr = holder.this
    inner.pop()
    return inner


def _column_or_outer(schema: StructType, path: list[str]) -> LeafColumn | None:
    """Return a column, or the map or array column that a path goes into."""
    for length in range(len(path), 0, -1):
        found = resolve_column(schema, path[:length])
        if found is not None:
            inside = isinstance(found.type, str | StructType) and length < len(path)
            return None if inside else found
    return None


def _is_double_quoted(node: exp.Column, text: str) -> bool:
    start = node.this.meta.get("start")
    return isinstance(start, int) and text[start : start + 1] == '"'


def _with_types(resolved: exp.Expr) -> exp.Expr:
    """Infer the types of all nodes from the types of the columns."""
    # sqlglot takes column types from a query only, so casts stand in for the columns.
    holder = exp.Paren(this=resolved)
    for node in list(holder.walk()):
        kind: DataType | None = node.meta.get("delta_type")
        if kind is not None:
            stand_in = exp.Cast(this=exp.Placeholder(), to=sql_type(kind))
            stand_in.meta["column"] = node
            node.replace(stand_in)
    annotate_types(holder, dialect=PredicateDialect)
    for node in list(holder.find_all(exp.Cast)):
        column = node.meta.get("column")
        if column is not None:
            column.type = node.to
            node.replace(column)
    inner: exp.Expr = holder.this
    inner.pop()
    return inner


def _with_explicit_semantics(expression: exp.Expr, flavour: Flavour) -> exp.Expr:
    """Rewrite the parts of an expression that engines would evaluate differently."""
    holder = exp.Paren(this=expression)
    for node in list(holder.walk()):
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
    inner: exp.Expr = holder.this
    inner.pop()
    return inner


def _add_utc(literal: exp.Literal) -> None:
    """Add UTC to a text without a zone that is compared with, or cast to, a timestamp."""
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
    """Add ESCAPE to a pattern with a backslash: some engines need it."""
    pattern = like.expression
    if isinstance(pattern, exp.Literal) and "\\" in pattern.this:
        inner = like.copy()
        like.replace(exp.Escape(this=inner, expression=exp.Literal.string("\\")))


def _path_of(name: str) -> list[str]:
    try:
        return column_path(parse_expression(name, PredicateDialect)) or [name]
    except SqlglotError:
        return [name]
