"""Find the tables in the text of a query, so that an engine can replace them by their rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.exceptions import InvalidQueryError
from deltasql.model.predicates.query_text import catalog_tables, with_at_clauses
from deltasql.model.statements.parameters import bind
from deltasql.model.statements.tokens import StatementDialect, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.model.statements.tokens import Word

_EXPLAIN = re.compile(r"\s*explain(\s+(extended|codegen|cost|formatted))?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableInQuery:
    """A table that a query reads, and its position in the text."""

    parts: tuple[str, ...]
    start: int
    end: int
    """The end of the name, or of `VERSION AS OF …` after the name."""
    alias: str | None
    version: int | None = None
    timestamp: str | None = None
    qualified: tuple[tuple[int, int], ...] = ()
    """The positions of the namespace in column names such as `crm.sales.id`."""


@dataclass(frozen=True, slots=True)
class QueryWithTables:
    """The text of a query, in which `t@3` is written `t VERSION AS OF 3`, and its tables."""

    text: str
    tables: tuple[TableInQuery, ...]
    parameters: tuple[tuple[int, int, str], ...] = ()
    """The positions and the names of parameters that are not in a table's version or timestamp."""


def tables_in_query(query: str, values: Mapping[str, Any] | None = None) -> QueryWithTables:
    """Return the tables that a query reads, except those that its WITH clauses define.

    `values` are the parameters of the query, which can be versions and timestamps.

    >>> [table] = tables_in_query("SELECT * FROM crm.sales@3 AS s").tables
    >>> table.parts, table.version, table.alias
    (('crm', 'sales'), 3, 's')
    """
    try:
        text = with_at_clauses(query, dialect=StatementDialect)
        explained = _EXPLAIN.match(text)
        skipped = explained.end() if explained else 0
        # Replace EXPLAIN by spaces, so that the positions in the rest of the text stay the same.
        tree = sqlglot.parse_one(" " * skipped + text[skipped:], read=StatementDialect)
    except SqlglotError as error:
        raise InvalidQueryError(
            "cannot find the tables of the query",
            help="Write a SELECT in Spark's SQL, or read the tables with deltasql.spark.read.",
        ) from error
    words = words_of(text)
    nodes = list(catalog_tables(tree))
    found = tuple(_table(node, tree, words, values or {}) for node in nodes)
    return QueryWithTables(text, found, tuple(_parameters(text, words, found)))


def _parameters(
    text: str, words: list[Word], tables: tuple[TableInQuery, ...]
) -> Iterator[tuple[int, int, str]]:
    for sign, name in pairwise(words):
        # `STRUCT<a:INT>` has a name before the colon.
        after_name = text[sign.start - 1 : sign.start].isidentifier()
        is_parameter = sign.upper == ":" and name.start == sign.end and not after_name
        if is_parameter and not any(each.start <= sign.start < each.end for each in tables):
            yield sign.start, name.end, name.text


def _table(
    node: exp.Table, tree: exp.Expr, words: list[Word], values: Mapping[str, Any]
) -> TableInQuery:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
    version, timestamp = None, None
    clause = node.args.get("version")
    if clause is not None:
        end = _end_of_clause(words, end)
        value = bind(clause.expression, values)
        value = value.this if isinstance(value, exp.Cast) else value
        text = value.this if isinstance(value, exp.Literal) else None
        if str(clause.this).upper() == "VERSION" and str(text).isdecimal():
            version = int(str(text))
        elif str(clause.this).upper() == "TIMESTAMP" and text is not None:
            timestamp = str(text)
        else:
            raise InvalidQueryError(
                f"{clause.sql(dialect=StatementDialect)} is not a version or a timestamp",
                help="Write VERSION AS OF 3, or TIMESTAMP AS OF '2024-05-01 12:00:00'.",
            )
    names = tuple(part.name for part in parts)
    qualified = () if node.alias or len(names) < 2 else tuple(_qualified(tree, names))
    return TableInQuery(names, start, end, node.alias or None, version, timestamp, qualified)


def _end_of_clause(words: list[Word], end: int) -> int:
    """Return the end of `VERSION AS OF value`, which follows the name of a table."""
    place = next(number for number, word in enumerate(words) if word.start >= end)
    place += 3  # VERSION AS OF
    if words[place].upper in (":", "TIMESTAMP", "DATE"):  # :name, or TIMESTAMP '…'
        place += 1
    return words[place].end


def _qualified(tree: exp.Expr, names: tuple[str, ...]) -> list[tuple[int, int]]:
    wanted = tuple(name.casefold() for name in names[-2:])
    found = []
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if tuple(part.name.casefold() for part in parts[:2]) == wanted and len(parts) > 2:
            found.append((parts[0].meta["start"], parts[1].meta["start"]))
    return found
