"""Parse SQL queries over tables of the catalog, and reject everything that does more than read.

Queries of `catalog.query` are in DuckDB's SQL, queries in SQL statements (`model.statements`) in
Spark's. A table is written `sales` or `crm.sales`. `sales@3` is version 3 of the table, the same as
`sales AT (VERSION => 3)` in DuckDB and `sales VERSION AS OF 3` in Spark; `sales@'2024-05-01'` is
the table at that timestamp. Queries, EXPLAIN, DESCRIBE, SUMMARIZE and SHOW TABLES are allowed. The
engine runs SQL that is generated from the parsed tree, so it runs only what was checked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import count
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from deltasql.exceptions import InvalidQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlglot.dialects.dialect import Dialect

DIALECT = "duckdb"
# Table functions that read nothing but their arguments.
_TABLE_FUNCTIONS = (exp.GenerateSeries, exp.Unnest, exp.Explode)
_FILE_FUNCTIONS = (exp.ReadCSV, exp.ReadParquet)
# Queries must not use these functions: they expose or change the state of this process, or run
# other queries.
_REFUSED_FUNCTIONS = frozenset(
    {"current_setting", "getenv", "getvariable", "nextval", "currval", "query", "query_table"}
    | {"write_log", "which_secret", "json_execute_serialized_sql", "pragma_version"}
)
_REFUSED_NODES = (
    *(exp.Into, exp.DDL, exp.DML, exp.Command, exp.Set, exp.Attach, exp.Detach, exp.Copy),
    *(exp.Pragma, exp.Use, exp.Parameter, exp.Placeholder, exp.SessionParameter, exp.Lock),
)
_FIRST_WORDS = frozenset(
    {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE", "SHOW", "("}
)
_LEADING = re.compile(r"\s*(explain)(\s+analyze)?\b", re.IGNORECASE)
_STATEMENT = re.compile(r"\s*(?:desc|describe)\s+(history|detail)\s+[\w`\"]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A table that a query uses: at the latest version, at a version, or at a timestamp."""

    place: str
    """The unique name in `QueryText.tree`; each occurrence of a table has a different name."""
    namespace: str | None
    name: str
    is_quoted: bool
    version: int | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueryText:
    """A parsed query and the tables it uses."""

    kind: str
    """`query`, `explain`, `explain analyze`, `describe`, `summarize` or `show tables`."""
    tree: exp.Query | None = field(repr=False)
    tables: tuple[QueriedTable, ...] = ()


def parse_query(
    sql: str,
    *,
    dialect: str | type[Dialect] = DIALECT,
    bind: Callable[[exp.Expr], exp.Expr] = lambda tree: tree,
) -> QueryText:
    """Parse a query and replace every table of the catalog by a unique name.

    `bind` replaces the parameters in the parsed tree by values.

    >>> query = parse_query("SELECT count(*) FROM crm.sales@3 WHERE id > 5")
    >>> query.tree.sql(dialect="duckdb")
    'SELECT COUNT(*) FROM asked_0 AS sales WHERE id > 5'
    >>> query.tables[0].version
    3
    """
    statement = _STATEMENT.match(sql)
    if statement is not None:
        raise InvalidQueryError(
            f"DESCRIBE {statement[1].upper()} is a statement, and only queries can be run here",
            help="Run it with `catalog.sql` or `deltasql sql`.",
        )
    leading = _LEADING.match(sql)
    kind = "query"
    if leading is not None:
        kind = "explain analyze" if leading[2] else "explain"
    parsed = bind(_parsed(sql[leading.end() :] if leading else sql, dialect))
    if kind == "query" and isinstance(parsed, exp.Show) and parsed.name.upper() == "TABLES":
        return QueryText("show tables", None)
    if kind == "query" and isinstance(parsed, exp.Describe | exp.Summarize):
        kind = "describe" if isinstance(parsed, exp.Describe) else "summarize"
        parsed = parsed.this
        if isinstance(parsed, exp.Table):
            parsed = exp.select("*").from_(parsed)
    if isinstance(parsed, exp.Subquery):
        parsed = _without_parentheses(parsed)
    if isinstance(parsed, exp.Values):
        parsed = exp.select("*").from_(exp.Subquery(this=parsed))
    if not isinstance(parsed, exp.Query):
        raise _invalid_query(f"only queries can be run here, not {_first_word(sql)}")
    for node in parsed.walk():
        _check_node(node)
    found = list(catalog_tables(parsed))
    _name_without_namespaces(parsed, found)
    # Use names that do not occur in the query: a WITH clause with the same name would hide the
    # table.
    taken = {each.name.casefold() for each in parsed.find_all(exp.Identifier)}
    places = (place for place in map("asked_{}".format, count()) if place not in taken)
    tables = tuple(_place(node, place) for node, place in zip(found, places, strict=False))
    return QueryText(kind, parsed, tables)


def limited(query: exp.Query, rows: int) -> exp.Query:
    """Limit the result of a query to `rows` rows, in the same order."""
    given = query.args.get("limit")
    if given is None and not query.args.get("fetch"):
        return query.limit(rows)
    number = number_of_rows(given)
    if number is not None and number <= rows:
        return query
    return exp.select("*").from_(query.subquery("answer")).limit(rows)


def number_of_rows(clause: exp.Expr | None) -> int | None:
    """Return the number in a LIMIT or OFFSET; None for a percentage or an expression."""
    if not isinstance(clause, exp.Limit | exp.Offset) or clause.args.get("limit_options"):
        return None
    amount = clause.expression
    return int(amount.this) if isinstance(amount, exp.Literal) and amount.is_int else None


def _without_parentheses(query: exp.Subquery) -> exp.Expr:
    """Remove parentheses around a query; keep the WITH, ORDER BY and LIMIT outside of them."""
    inner: exp.Expr = query.this
    if isinstance(inner, exp.Subquery):
        inner = _without_parentheses(inner)
    given = {name: value for name, value in query.args.items() if value and name != "this"}
    if not given:
        return inner
    query.set("this", inner)
    outer = exp.Select(expressions=[exp.Star()])
    for name in given.keys() & {"with_", "order", "limit", "offset", "fetch"}:
        query.set(name, None)
        outer.set(name, given[name])
    return outer.from_(query, copy=False)


def _parsed(text: str, dialect: str | type[Dialect]) -> exp.Expr:
    whose = "DuckDB" if dialect == DIALECT else "Spark"
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
        if tokens and tokens[0].text.upper() not in _FIRST_WORDS:
            raise _not_a_query(tokens[0].text.upper()[:40])
        parsed = sqlglot.parse(with_at_clauses(text, dialect=dialect), read=dialect)
        found = [each for each in parsed if each is not None]
    except SqlglotError as error:
        raise InvalidQueryError(
            f"cannot parse the query{_position(error)}",
            help=f"Write a SELECT over tables of the catalog, in {whose}'s SQL."
            + _keyword_hint(error, dialect),
        ) from error
    if not found:
        raise _invalid_query("the query is empty")
    if len(found) > 1:
        raise _invalid_query(f"the text has {len(found)} statements, but only one query can be run")
    return found[0]


def with_at_clauses(text: str, *, dialect: str | type[Dialect] = DIALECT) -> str:
    """Replace `sales@3` by the clause that the SQL dialect has for a version of a table.

    >>> with_at_clauses("FROM sales@3"), with_at_clauses("FROM sales@v3", dialect="spark")
    ('FROM sales AT (VERSION => 3)', 'FROM sales VERSION AS OF 3')
    """
    clause = " AT ({} => {})" if dialect == DIALECT else " {} AS OF {}"
    tokens = sqlglot.tokenize(text, read=dialect)
    parts: list[str] = []
    done = 0
    for name, at, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if at.text != "@" or at.start != name.end + 1 or value.start != at.end + 1:
            continue
        kind = _at_kind(name, value)
        if kind is not None:
            given = text[value.start : value.end + 1].lstrip("v")
            parts += [text[done : name.end + 1], clause.format(kind, given)]
            done = value.end + 1
    return "".join([*parts, text[done:]])


def _at_kind(name: Token, value: Token) -> str | None:
    if not (name.token_type is TokenType.IDENTIFIER or name.text.replace("_", "a").isalnum()):
        return None
    if value.token_type is TokenType.NUMBER or re.fullmatch(r"v\d+", value.text):
        return "VERSION"
    return "TIMESTAMP" if value.token_type is TokenType.STRING else None


def _check_node(node: exp.Expr) -> None:
    """Raise InvalidQueryError for a node that does more than read tables of the catalog."""
    if isinstance(node, _REFUSED_NODES):
        raise _invalid_query(f"{node.sql(dialect=DIALECT)[:80]} cannot be used in a query")
    if isinstance(node, exp.Anonymous) and node.name.casefold() in _REFUSED_FUNCTIONS:
        raise _invalid_query(f"the function {node.name} is not available here")
    if isinstance(node, _FILE_FUNCTIONS):
        raise _invalid_query(f"the table function {_function_name(node)} is not available here")
    if isinstance(node, exp.Table | exp.Lateral):
        own = exp.Identifier if isinstance(node, exp.Table) else exp.Subquery
        if not isinstance(node.this, (own, *_TABLE_FUNCTIONS)):
            raise _invalid_query(
                f"the table function {_function_name(node.this)} is not available here"
            )
    if isinstance(node, exp.Subquery) and _is_statement(node.this):
        raise _invalid_query("DESCRIBE, SUMMARIZE and SHOW cannot be part of a query")


def _function_name(node: object) -> str:
    if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous):
        return node.sql_name().lower()
    return node.name.lower() if isinstance(node, exp.Expr) else "of several"


def _is_statement(node: object) -> bool:
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        # In a subquery, sqlglot parses `(SHOW TABLES)` as a table SHOW with the alias TABLES.
        return node.name.upper() == "SHOW" and not node.this.args.get("quoted") and bool(node.alias)
    return isinstance(node, exp.Describe | exp.Summarize | exp.Show)


def catalog_tables(query: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables that no WITH clause of the query defines."""
    for node in list(query.find_all(exp.Table)):
        if isinstance(node.this, exp.Identifier) and (node.db or not _is_defined(node)):
            yield node


def _is_defined(table: exp.Table) -> bool:
    inside: exp.Expr = table
    scope = table.parent
    while scope is not None:
        defined = scope.args.get("with_") if isinstance(scope, exp.Query) else None
        if isinstance(scope, exp.With):
            defined = scope
        # A query in a WITH clause sees only the queries that are defined before it.
        if defined is not None and defined is not inside and _defines(defined, table, inside):
            return True
        inside, scope = scope, scope.parent
    return False


def _defines(given: exp.With, table: exp.Table, inside: exp.Expr) -> bool:
    """Return whether a WITH clause defines the table for the query that uses it."""
    name = table.name.casefold()
    for each in given.expressions:
        if each is inside:
            return bool(given.recursive) and each.alias.casefold() == name
        if each.alias.casefold() == name:
            return True
    return False


def _name_without_namespaces(query: exp.Query, tables: Sequence[exp.Table]) -> None:
    """Give every table an alias without a namespace, and qualify its columns with the alias."""
    by_select: dict[int, list[exp.Table]] = {}
    for table in tables:
        if not table.alias:
            by_select.setdefault(id(table.find_ancestor(exp.Select)), []).append(table)
    for column in list(query.find_all(exp.Column)):
        first, second = ("catalog", "db") if column.catalog else ("db", "table")
        named = (column.text(first).casefold(), column.text(second).casefold())
        select = column.find_ancestor(exp.Select) if named[0] else None
        while select is not None:
            beside = by_select.get(id(select), [])
            matching = [each for each in beside if _full_name(each) == named]
            if matching:
                column.set(first, None)
                column.set(second, exp.to_identifier(_short_name(matching[0], beside)))
            # If another table in this SELECT has this name, do not look at outer queries: the user
            # has to write an alias.
            names = {each.alias_or_name.casefold() for each in _sources(select)}
            if matching or named[1] in names:
                break
            select = select.find_ancestor(exp.Select)
    for beside in by_select.values():
        for table, name in [(each, _short_name(each, beside)) for each in beside]:
            alias = table.args.get("alias") or exp.TableAlias()
            alias.set("this", exp.to_identifier(name))
            table.set("alias", alias)


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    for node in select.find_all(exp.Table, exp.DerivedTable):
        if node.find_ancestor(exp.Select) is select:
            yield node


def _full_name(table: exp.Table) -> tuple[str, str]:
    return table.db.casefold(), table.name.casefold()


def _short_name(table: exp.Table, beside: Sequence[exp.Table]) -> str:
    """Return a table's name, with the namespace if another table in the SELECT has this name."""
    namespace, name = _full_name(table)
    others = (each for each in beside if _full_name(each)[0] != namespace)
    if namespace and any(_full_name(each)[1] == name for each in others):
        return f"{table.db}.{table.name}"
    return table.name


def _place(table: exp.Table, place: str) -> QueriedTable:
    if table.catalog:
        raise InvalidQueryError(
            f"the table name {table.sql(dialect=DIALECT)} has too many parts",
            help="Write `name` or `namespace.name`.",
        )
    version, timestamp = version_or_timestamp(table)
    found = QueriedTable(
        place=place,
        namespace=table.db or None,
        name=table.name,
        is_quoted=bool(table.this.args.get("quoted")),
        version=version,
        timestamp=timestamp,
    )
    for part in ("db", "when", "version"):
        table.set(part, None)
    table.set("this", exp.to_identifier(place))
    return found


def version_or_timestamp(table: exp.Table) -> tuple[int | None, datetime | None]:
    """Return the version or the timestamp of a table; a timestamp without a zone is in UTC."""
    given = table.args.get("when") or table.args.get("version")
    if given is None:
        return None, None
    kind = str(given.args["kind"] if table.args.get("when") else given.this).upper()
    value: Any = given.expression
    if isinstance(value, exp.Cast):
        value = value.this
    text = value.this if isinstance(value, exp.Literal) else None
    if text is not None and kind == "VERSION" and text.isdecimal():
        return int(text), None
    if text is not None and kind == "TIMESTAMP":
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return None, found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    raise InvalidQueryError(
        f"{given.sql(dialect=DIALECT)} is not a version or a timestamp of {table.name}",
        help=f"Write {table.name}@3 or {table.name}@'2024-05-01T12:00:00Z'.",
    )


def _invalid_query(message: str) -> InvalidQueryError:
    return InvalidQueryError(
        message,
        help="Write one SELECT, WITH, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES "
        "over the catalog's own tables.",
    )


def _not_a_query(word: str) -> InvalidQueryError:
    near = get_close_matches(word, sorted(_FIRST_WORDS), n=1, cutoff=0.8)
    if not near:
        return _invalid_query(f"only queries can be run here, not {word}")
    return InvalidQueryError(f"a query cannot start with {word}", help=f"Did you mean {near[0]}?")


def _first_word(sql: str) -> str:
    return (sql.split() or ["nothing"])[0].upper()[:40]


def _position(error: SqlglotError) -> str:
    near = _near(error)
    if not near or not isinstance(error, ParseError):
        return ""
    return f" near {near!r}, line {error.errors[0].get('line')}"


def _near(error: SqlglotError) -> str:
    """Return the word at which the parser failed, or an empty string."""
    if not isinstance(error, ParseError) or not error.errors:
        return ""
    return str(error.errors[0].get("highlight") or "")


def _keyword_hint(error: SqlglotError, dialect: str | type[Dialect]) -> str:
    """Return how to write a table or column whose name is a keyword of SQL."""
    near, rules = _near(error), sqlglot.Dialect.get_or_raise(dialect)
    if near.upper() not in rules.tokenizer_class.KEYWORDS:
        return ""
    kind = "double quotes" if dialect == DIALECT else "backquotes"
    quote = '"' if dialect == DIALECT else "`"
    return f" If {near} is a name, put it in {kind}: {quote}{near}{quote}."
