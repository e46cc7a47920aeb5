"""Parse SQL expressions of users to sqlglot trees; no other module parses an expression.

The SQL of deltalake (DataFusion) and the SQL of delta-spark are both parsed with Spark's grammar:
backquotes around names, single quotes around string literals, `''` for a quote in a literal. There
are two differences:

- A backslash is a normal character in DataFusion's SQL, and an escape character in Spark's SQL.
- Timestamp formats in DataFusion's SQL have percent signs.

`parse_expression` returns the tree of an expression. `resolve` then replaces each column reference
by the exact name of the column, and adds the type. Names are case-insensitive. Double quotes
enclose a column name if there is a column with that name, otherwise a string literal. Data skipping
(`pruning`) and the SQL for engines (`operations.sql`) are derived from the resolved tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.helper import seq_get
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from deltasql.exceptions import TxnLogSchemaError, UnsupportedReleaseError
from deltasql.exceptions.prefixes import AMBIGUOUS_ERROR, FIELD_ERROR, PARSER_ERROR
from deltasql.model.schema.schema import (
    LeafColumn,
    StructType,
    is_collated,
    nearest,
    resolve_column,
)

Flavour: TypeAlias = Literal["datafusion", "spark"]
"""The SQL flavour of an expression: `datafusion` for deltalake, `spark` for delta-spark."""
COLLATED = "collated"
"""The key in the meta of a column whose strings have a collation."""


def reject_compiled(parser: type) -> None:
    """Raise if the installed sqlglot is compiled (`sqlglotc`): its parsers have no subclasses."""
    try:
        type("Subclass", (parser,), {})()
    except TypeError as error:
        raise UnsupportedReleaseError(
            "the compiled modules of sqlglot (sqlglotc, sqlglot[c]) are not supported: deltasql "
            "extends sqlglot's parser",
            component="sqlglotc",
            help="Run: pip uninstall sqlglotc",
        ) from error


reject_compiled(SparkParser)


class PredicateDialect(Spark):
    """Spark's SQL, extended by double-quoted names, `''` in literals, and `~` for RLIKE."""

    class Tokenizer(Spark.Tokenizer):
        QUOTES = ["'"]  # noqa: RUF012  (sqlglot's own form)
        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        STRING_ESCAPES = ["'", "\\"]  # noqa: RUF012

    class Parser(SparkParser):
        RANGE_PARSERS = {  # noqa: RUF012
            **SparkParser.RANGE_PARSERS,
            TokenType.TILDE: SparkParser.RANGE_PARSERS[TokenType.RLIKE],
        }


def _formatted(args: list[exp.Expr]) -> exp.Expr:
    # Do not check the arguments: sqlglot raises a ParseError if one is missing.
    return exp.TimeToStr(this=seq_get(args, 0), format=seq_get(args, 1))


def _day(args: list[exp.Expr]) -> exp.Expr:
    if not args:
        raise ParseError.new("TO_DATE has no argument")
    timestamp = args[0] if len(args) == 1 else exp.StrToTime(this=args[0], format=args[1])
    return exp.cast(timestamp, exp.DType.DATE)


class DataFusionDialect(PredicateDialect):
    """`PredicateDialect` without backslash escapes, and with percent signs in formats."""

    class Tokenizer(PredicateDialect.Tokenizer):
        STRING_ESCAPES = ["'"]  # noqa: RUF012

    class Parser(PredicateDialect.Parser):
        FUNCTIONS = {  # noqa: RUF012
            **PredicateDialect.Parser.FUNCTIONS,
            "TO_CHAR": _formatted,
            "DATE_FORMAT": _formatted,
            "TO_DATE": _day,
        }

    class Generator(SparkGenerator):
        def timetostr_sql(self, expression: exp.TimeToStr) -> str:
            return str(self.func("TO_CHAR", expression.this, expression.args.get("format")))

        def tsordstodate_sql(self, expression: exp.TsOrDsToDate) -> str:
            return str(self.func("TO_DATE", expression.this, expression.args.get("format")))

        TRANSFORMS = {  # noqa: RUF012
            kind: made
            for kind, made in SparkGenerator.TRANSFORMS.items()
            if kind not in (exp.TimeToStr, exp.TsOrDsToDate)
        }


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may use.

    `relations` maps the names of relations in the query to their schemas. `aliases` maps the user's
    aliases to these names.
    """

    relations: Mapping[str, StructType]
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, relation: str = "") -> Scope:
        """Return the scope of one relation; columns are unqualified if its name is empty."""
        return cls({relation: schema})

    def find(self, path: list[str]) -> tuple[str, LeafColumn, list[str]] | None:
        """Return the relation and the column that a path refers to, and the rest of the path.

        The rest of a path consists of keys of a map column. Return None if there is no such column.
        """
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
        """Return the error for an unknown column, or for an unknown field of a struct column."""
        shown, missing = ".".join(path), path[-1]
        alias_of = {name: alias for alias, name in self.aliases.items()}
        if len(self.relations) == 1 or not alias_of.keys() >= self.relations.keys():
            alias_of = {}
        names = [
            f"{alias_of[relation]}.{name}" if alias_of else name
            for relation, schema in self.relations.items()
            for name in schema.names
        ]
        if alias_of:
            missing = shown
        is_alias = path[0].casefold() in {alias.casefold() for alias in self.aliases}
        for length in range(len(path) - 1, int(is_alias), -1):
            outer = self.find(path[:length])
            if outer is not None and isinstance(outer[1].type, StructType):
                names, missing = list(outer[1].type.names), path[length]
                break
        near = nearest(missing, names)
        who = "neither side of the merge has" if alias_of else "the table does not have"
        return TxnLogSchemaError(
            f"{f'No field named {shown}. {near}'.rstrip()}\nValid fields are {', '.join(names)}.",
            column=shown,
            prefix=FIELD_ERROR,
            help=f"Correct the expression {text!r}: {who} this column.",
        )


def parse_expression(
    text: str,
    *,
    escapes: bool = False,
    help: str = "Write one SQL expression such as: amount * 2, or: day >= '2024-05-01'.",
) -> exp.Expr:
    """Parse one SQL expression without resolving its columns.

    With `escapes`, a backslash is an escape character. Trees are cached, because an operation
    parses the same expression several times: to find files, to find rows, and for the history. The
    caller gets a copy.

    >>> try:
    ...     parse_expression("id >")
    ... except TxnLogSchemaError as error:
    ...     error.message
    "sql parser error: Expected: an expression, found: EOF after > in 'id >', line 1 column 4"
    """
    try:
        return _parsed(text, PredicateDialect if escapes else DataFusionDialect).copy()
    except SqlglotError as error:
        raise TxnLogSchemaError(
            _parser_message(text, error), prefix=PARSER_ERROR, help=help
        ) from error
    except RecursionError:
        raise nested_too_deeply() from None


def nested_too_deeply() -> TxnLogSchemaError:
    """Return the error for an expression that exceeds Python's recursion limit."""
    return TxnLogSchemaError(
        "the expression is nested too deeply", help="Write it with fewer brackets and NOTs."
    )


def resolve(parsed: exp.Expr, scope: Scope, text: str = "") -> exp.Expr:
    """Replace each column reference by the column's relation and exact name, and add its type.

    The type is stored in the node's meta as `delta_type`. `text` is the string that was parsed. If
    it is missing, double quotes always enclose names, never string literals. Names in a subquery
    belong to the tables of the subquery and are not changed.

    >>> from deltasql.model.schema.schema import StructField
    >>> table = StructType((StructField("Id", "long"),))
    >>> resolve(parse_expression("id = 1"), Scope.of(table, "t")).sql(dialect="duckdb")
    '"t"."Id" = 1'
    """
    wrapper = exp.Paren(this=parsed)
    for reference in list(references(wrapper)):
        path = column_path(reference)
        found = scope.find(path)
        if found is None and len(path) == 1 and _is_double_quoted(reference, text):
            reference.replace(exp.Literal.string(path[0]))
            continue
        if found is None:
            raise scope.unknown(path, text or parsed.sql(dialect=PredicateDialect))
        relation, leaf, keys = found
        resolved = field_of(leaf.path, relation)
        for key in keys:
            resolved = exp.Bracket(this=resolved, expressions=[exp.Literal.string(key)])
        resolved.meta["delta_type"] = leaf.type if not keys else None
        if is_collated(leaf.type, leaf.metadata):
            resolved.meta[COLLATED] = True
        reference.replace(resolved)
    inner: exp.Expr = wrapper.this
    inner.pop()
    return inner


def references(expression: exp.Expr) -> Iterator[exp.Expr]:
    """Yield each column reference; for a dotted path, this is the outermost node of the path."""
    for node in expression.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            reference: exp.Expr = node
            while isinstance(reference.parent, exp.Dot) and column_path(reference.parent):
                reference = reference.parent
            yield reference


def column_path(node: exp.Expr) -> list[str]:
    """Return the names in a column reference; an empty list for any other expression."""
    names: list[str] = []
    here = node
    while isinstance(here, exp.Dot) and isinstance(here.expression, exp.Identifier):
        names.append(here.expression.name)
        here = here.this
    if not isinstance(here, exp.Column) or isinstance(here.this, exp.Star):
        return []
    return [*(part.name for part in here.parts), *reversed(names)]


def field_of(path: Sequence[str], relation: str = "") -> exp.Expr:
    """Return a column, or a field of a struct column, by its path."""
    first, *rest = (exp.Identifier(this=name, quoted=True) for name in path)
    reference: exp.Expr = exp.Column(this=first)
    if relation:
        reference.set("table", exp.Identifier(this=relation, quoted=True))
    for name in rest:
        reference = exp.Dot(this=reference, expression=name)
    return reference


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that are joined by AND, including those inside parentheses."""
    plain = condition.unnest()
    if isinstance(plain, exp.And):
        for part in plain.flatten():
            yield from conjuncts(part)
    else:
        yield plain


@lru_cache(maxsize=256)
def _parsed(text: str, dialect: type[PredicateDialect]) -> exp.Expr:
    return sqlglot.parse_one(text, read=dialect, into=exp.Condition)


def _parser_message(text: str, error: SqlglotError) -> str:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    last, rest = first.get("highlight") or "", first.get("end_context") or ""
    found = last if rest.strip() else f"EOF after {last}" if last else "EOF"
    at = f", line {first['line']} column {first['col']}" if first.get("line") else ""
    return f"sql parser error: Expected: an expression, found: {found} in {text!r}{at}"


def _column_or_outer(schema: StructType, path: list[str]) -> LeafColumn | None:
    """Return the column of a path, or the map or array column that contains its value."""
    for length in range(len(path), 0, -1):
        found = resolve_column(schema, path[:length])
        if found is not None:
            inside = isinstance(found.type, str | StructType) and length < len(path)
            return None if inside else found
    return None


def _is_double_quoted(node: exp.Expr, text: str) -> bool:
    start = node.this.meta.get("start") if isinstance(node, exp.Column) else None
    return isinstance(start, int) and text[start : start + 1] == '"'
