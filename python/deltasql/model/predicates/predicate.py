"""Parse predicates (SQL text or filter lists) for a table, for data skipping and for engines.

The SQL dialect is Spark's: backquotes around names, single quotes around string literals, `''` for
a quote in a literal. Predicates written for DataFusion work, too:

- A backslash is a normal character, as in DataFusion, unless the predicate can only be parsed with
  Spark's escapes. Data skipping does not use a literal whose meaning depends on this.
- Double quotes enclose the name of a column if the table has such a column, otherwise a string
  literal.

Column names are case-insensitive. A timestamp without a time zone is UTC.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from deltasql import _core
from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import PARSER_ERROR
from deltasql.model.predicates.filters import filters_to_condition
from deltasql.model.predicates.literals import DOUBTFUL
from deltasql.model.predicates.pruning import Compiler, column_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.dialects.dialect import Dialect

    from deltasql.model.predicates.literals import Node
    from deltasql.model.schema.schema import LeafColumn, StructType

LOWEST = b""
HIGHEST = b"\xff"
_RANDOM = (exp.Rand, exp.Randn, exp.Uuid)


class PredicateDialect(Spark):
    """Spark's SQL with double-quoted names, `''` in literals and `~` for regular expressions."""

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
    return exp.TimeToStr(this=args[0], format=args[1])


def _day(args: list[exp.Expr]) -> exp.Expr:
    moment = args[0] if len(args) == 1 else exp.StrToTime(this=args[0], format=args[1])
    return exp.cast(moment, exp.DType.DATE)


class DataFusionDialect(PredicateDialect):
    """The same without backslash escapes, and with percent signs in timestamp formats."""

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
class Bound:
    """A range that every matching file overlaps: maximum >= low and minimum <= high, as keys.

    `b""` is below and `b"\\xff"` is above every key.
    """

    path: tuple[str, ...]
    type: str
    low: bytes = LOWEST
    high: bytes = HIGHEST


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the rows of one table."""

    sql: str
    tree: Node = field(repr=False)
    columns: tuple[LeafColumn, ...]
    partition_only: bool
    expression: exp.Expr = field(repr=False, compare=False)

    def to_pruning_json(self) -> str:
        """Return the pruning tree in the format of `_core.Predicate`."""
        return json.dumps(self.tree, separators=(",", ":"), ensure_ascii=False)

    def to_sql(self, dialect: str) -> str:
        """Return the condition in the SQL dialect `duckdb` or `spark`."""
        return self.expression.sql(dialect=dialect)

    def bounds(self) -> list[Bound]:
        """Return the ranges that AND-ed conditions give for data columns, one per column."""
        parts = self.tree["args"] if self.tree["op"] == "and" else [self.tree]
        found: dict[tuple[str, ...], Bound] = {}
        for part in parts:
            if "column" not in part or part.get("partition"):
                continue
            path = tuple(part["column"])
            low, high = _key_range(part)
            if (low, high) != (LOWEST, HIGHEST):
                held = found.get(path, Bound(path, part["type"]))
                found[path] = Bound(path, held.type, max(held.low, low), min(held.high, high))
        return list(found.values())


def parse_predicate(
    predicate: object,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    column_mapping_mode: str | None = None,
) -> Predicate:
    """Parse a predicate, SQL or filters, with the columns of a table.

    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("day", "date"), StructField("n", "integer")))
    >>> parse_predicate("day >= '2024-05-01' AND n < 2.5", table, ["day"]).to_pruning_json()
    '{"op":"and","args":[{"op":">=","column":["day"],"type":"date","partition":true,\
"value":"2024-05-01"},{"op":"<=","column":["n"],"type":"integer","value":"2"}]}'
    """
    try:
        return _resolve(predicate, schema, partition_columns, column_mapping_mode)
    except RecursionError:
        raise TxnLogSchemaError(
            "the predicate is nested too deeply", help="Write it with fewer brackets and NOTs."
        ) from None


def _resolve(
    predicate: object,
    schema: StructType,
    partition_columns: Sequence[str],
    column_mapping_mode: str | None,
) -> Predicate:
    compiler = Compiler(schema, partition_columns, column_mapping_mode)
    if isinstance(predicate, str):
        condition = _parse(predicate, schema)
        text = predicate
    elif isinstance(predicate, list | tuple | exp.Expr):
        condition = (
            predicate
            if isinstance(predicate, exp.Expr)
            else filters_to_condition(predicate, schema, partition_columns)
        )
        text = condition.sql(dialect=PredicateDialect)
    else:
        raise TxnLogSchemaError(
            f"cannot make a predicate of {type(predicate).__name__}",
            help="Give SQL text, or filters such as [('day', '=', '2024-05-01')].",
        )
    used = {column.path: column for column in map(compiler.column, _references(condition))}
    only_partitions = all(compiler.is_partition(column) for column in used.values())
    return Predicate(
        sql=text,
        tree=compiler.tree(condition),
        columns=tuple(used.values()),
        partition_only=only_partitions and condition.find(exp.Query, *_RANDOM) is None,
        expression=condition,
    )


def parse_expression(text: str, dialect: type[Dialect]) -> exp.Expr:
    """Parse one SQL expression; the result is cached and copied.

    An operation parses the same text several times: to find files, to find rows, for the history.
    """
    return _parsed(text, dialect).copy()


@lru_cache(maxsize=256)
def _parsed(text: str, dialect: type[Dialect]) -> exp.Expr:
    return sqlglot.parse_one(text, read=dialect, into=exp.Condition)


def _parse(text: str, schema: StructType) -> exp.Expr:
    parsed, failed = None, None
    # First with a backslash as a normal character, then as an escape.
    for dialect in (DataFusionDialect, PredicateDialect):
        try:
            parsed = parse_expression(text, dialect)
            break
        except SqlglotError as error:
            failed = failed or error
    if parsed is None and failed is not None:
        raise TxnLogSchemaError(
            parser_message(text, failed),
            prefix=PARSER_ERROR,
            help="Write a SQL condition such as: day >= '2024-05-01' AND amount > 10.",
        ) from failed
    if not isinstance(parsed, exp.Condition):
        raise TxnLogSchemaError(
            f"the predicate {text!r} is not one condition",
            help="Give a single SQL condition, without statements or semicolons.",
        )
    made = parsed.transform(lambda node: _double_quoted_text(node, text, schema))
    # Not if the first dialect failed: then only one meaning is possible.
    for literal in made.find_all(exp.Literal) if "\\" in text and failed is None else ():
        literal.meta[DOUBTFUL] = literal.is_string and "\\" in literal.this
    return made


def _double_quoted_text(node: exp.Expr, text: str, schema: StructType) -> exp.Expr:
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or isinstance(node.parent, exp.Dot):
        return node
    start = node.this.meta.get("start")
    quoted = isinstance(start, int) and text[start : start + 1] == '"'
    return exp.Literal.string(node.name) if quoted and not schema.find(node.name) else node


def parser_message(text: str, error: SqlglotError) -> str:
    """Return a message with the position of a syntax error.

    >>> try:
    ...     sqlglot.parse_one("id >", read=PredicateDialect)
    ... except SqlglotError as error:
    ...     parser_message("id >", error)
    "sql parser error: Expected: an expression, found: EOF after > in 'id >', line 1 column 4"
    """
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    last = first.get("highlight", "")
    found = last if first.get("end_context", "").strip() else f"EOF after {last}" if last else "EOF"
    at = f", line {first['line']} column {first['col']}" if first.get("line") else ""
    return f"sql parser error: Expected: an expression, found: {found} in {text!r}{at}"


def _references(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield every reference to a column of this table, as the outermost node of its path."""
    # Names in a subquery belong to its own tables.
    for node in condition.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            reference: exp.Expr = node
            while isinstance(reference.parent, exp.Dot) and column_path(reference.parent):
                reference = reference.parent
            yield reference


def _key_range(part: Node) -> tuple[bytes, bytes]:
    data_type, op = part["type"], part["op"]
    if op == "between":
        return _keys(data_type, part["low"])[0], _keys(data_type, part["high"])[1]
    if op == "in":
        pairs = [_keys(data_type, text) for text in part["values"]]
        return min(low for low, _ in pairs), max(high for _, high in pairs)
    if "value" not in part or op == "<>":
        return LOWEST, HIGHEST
    low, high = _keys(data_type, part["value"])
    if op == "starts_with":
        # UTF-8 has no byte 0xff, so this is above every string with the prefix.
        return low, high + b"\xff"
    if op in ("<", "<="):
        return LOWEST, high
    if op == "=":
        return low, high
    # NaN is above every number, and a maximum in the statistics may not include it.
    return (LOWEST if data_type in ("float", "double") else low), HIGHEST


def _keys(data_type: str, text: str) -> tuple[bytes, bytes]:
    return _core.key_bounds(data_type, text) or (LOWEST, HIGHEST)
