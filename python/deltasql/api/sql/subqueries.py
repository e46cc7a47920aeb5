"""Run the subqueries of UPDATE and DELETE first, and replace each one by the values it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.exceptions import InvalidQueryError
from deltasql.model.predicates.parser import PredicateDialect, parse_expression
from deltasql.model.statements.parameters import bind, literal
from deltasql.model.statements.tokens import StatementDialect, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import pyarrow as pa

    from deltasql.model.statements.tokens import Word

MOST_ROWS = 10_000
"""The most rows that a subquery may return: each of them becomes a literal in the condition."""
_QUERY_WORDS = ("SELECT", "WITH", "VALUES")
_HELP = (
    "Write MERGE INTO … USING (the subquery) AS s ON … WHEN MATCHED THEN DELETE or UPDATE SET …."
)


def without_subqueries(
    text: str,
    values: Mapping[str, Any],
    *,
    own: Collection[str],
    fetch: Callable[[str], pa.Table],
) -> str:
    """Return an expression in Spark's SQL, with literals in place of subqueries and parameters.

    `own` has the name and the alias of the table that the statement changes: a subquery cannot use
    its columns. `fetch` returns the rows of a query, at most `MOST_ROWS + 1`: one row too many is
    reported as an error.
    """
    words, edits = words_of(text), []
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        is_query = words[place].upper == "(" and _word(words, place + 1) in _QUERY_WORDS
        if is_query:
            end = _closing(words, place)
            query = text[words[place].end : words[end].start]
            _reject_columns_of(own, query)
            before = _word(words, place - 1) if place else ""
            name = f"deltasql_{len(found)}"
            found[name] = _value(fetch(query), before, query)
            start = words[place - (before == "EXISTS")].start
            edits.append((start, words[end].end, f"(:{name})" if before == "IN" else f":{name}"))
            place = end
        place += 1
    for start, stop, new in reversed(edits):
        text = text[:start] + new + text[stop:]
    root = exp.Paren(this=parse_expression(text, escapes=True))
    for node in list(root.find_all(exp.In)):
        listed = node.expressions[0] if node.expressions else None
        if isinstance(listed, exp.Placeholder) and listed.name in found:
            members = [literal(each) for each in found[listed.name]]
            if members:
                node.set("expressions", members)
            else:
                node.replace(exp.false())
    return str(bind(root.this, {**values, **found}).sql(dialect=PredicateDialect))


def has_subquery(text: str) -> bool:
    """Return whether an expression has a subquery."""
    return parse_expression(text, escapes=True).find(exp.Query) is not None


def _value(rows: pa.Table, before: str, query: str) -> Any:
    """Return what replaces a subquery: a list after IN, a boolean after EXISTS, or one value."""
    shown = " ".join(query.split())
    if before == "EXISTS":
        return rows.num_rows > 0
    if before in ("ANY", "SOME", "ALL", "ARRAY"):
        raise InvalidQueryError(f"{before} (subquery) is not supported", help=_HELP)
    if rows.num_columns != 1:
        raise InvalidQueryError(
            f"the subquery ({shown}) has {rows.num_columns} columns instead of one", help=_HELP
        )
    column = rows.column(0).to_pylist()
    if before == "IN":
        if len(column) > MOST_ROWS:
            raise InvalidQueryError(
                f"the subquery ({shown}) has more than {MOST_ROWS:,} rows", help=_HELP
            )
        return list(dict.fromkeys(column))
    if len(column) > 1:
        raise InvalidQueryError(
            f"the subquery ({shown}) must return one value, but it has several rows",
            help="Write IN instead of =, or an aggregate such as max in the subquery.",
        )
    return column[0] if column else None


def _reject_columns_of(own: Collection[str], query: str) -> None:
    """Raise if a subquery uses a column of the changed table, so that it cannot run separately."""
    try:
        tree = sqlglot.parse_one(query, read=StatementDialect)
    except SqlglotError:
        return  # the engine says what is wrong
    inner = {each.alias_or_name.casefold() for each in tree.find_all(exp.Table, exp.Subquery)}
    outer = {each.casefold() for each in own} - inner
    for column in tree.find_all(exp.Column):
        if column.table.casefold() in outer:
            raise InvalidQueryError(
                f"a subquery of UPDATE or DELETE cannot use {column.sql()}, which is a column of "
                "the changed table",
                help=_HELP,
            )


def _closing(words: list[Word], place: int) -> int:
    """Return the position of the parenthesis that closes the one at `place`."""
    depth = 0
    for number in range(place, len(words)):
        depth += {"(": 1, ")": -1}.get(words[number].upper, 0)
        if depth == 0:
            return number
    raise InvalidQueryError("a parenthesis is not closed", help="Close every parenthesis.")


def _word(words: list[Word], place: int) -> str:
    return words[place].upper if place < len(words) else ""
