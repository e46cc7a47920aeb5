"""Queries of statements on the embedded engine: Spark's SQL, translated to DuckDB's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.api.catalog.base import CatalogTable, spelling_of
from deltasql.api.catalog.query import closing_reader, live_files, run_parsed, sandbox
from deltasql.api.sql.engine import as_they_are
from deltasql.exceptions import InvalidQueryError
from deltasql.model.predicates.parser import parse_expression
from deltasql.model.predicates.query_conditions import condition_on
from deltasql.model.predicates.query_text import parse_query
from deltasql.model.schema.convert import HAS_VARIANTS
from deltasql.model.schema.schema import has_variant
from deltasql.model.statements.parameters import bind
from deltasql.model.statements.tokens import StatementDialect
from deltasql.operations.sql.collations import reject_collated_query
from deltasql.operations.sql.queries import identifier
from deltasql.operations.sql.types import cast_to
from deltasql.storage import absolute_location
from deltasql.store.locations import tables_at
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.sql.engine import Arrange, Stored
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.predicates.query_text import QueriedTable, QueryText
    from deltasql.model.statements.statement import TableRef

_PATH_FORMATS = ("delta", "deltasql")
# Integer types of DuckDB that Delta does not have. DuckDB's sum() of integers is an INT128, Spark's
# is a BIGINT.
_OTHER_INTEGERS = {
    exp.DType.INT128: "BIGINT",
    exp.DType.UBIGINT: "DECIMAL(20, 0)",
    exp.DType.UINT: "BIGINT",
}


_UNNAMED = (exp.Binary, exp.Func, exp.Literal, exp.Placeholder, exp.Bracket)


class EmbeddedEngine:
    """Runs queries in a DuckDB sandbox, which can read only the tables of the query."""

    name: str | None = None

    def table(self, tx: MultiTableTransaction, table: TableRef) -> str:
        """Return the name of a table in the catalog's spelling; delta.`path` is also accepted."""
        return table_name(tx.catalog, table.parts, tx.creates)

    def location(self, path: str) -> str:
        """Convert a path in a statement to the form in which the catalog stores locations."""
        return absolute_location(path)

    def timestamp(self, text: str) -> datetime:
        """Parse a timestamp; without a zone, it is in UTC."""
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise InvalidQueryError(
                f"{text!r} is not a timestamp", help="Write '2024-05-01 12:00:00'."
            ) from error
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def start(self, tx: MultiTableTransaction, table: str) -> None:
        """Do nothing: a transaction opens the embedded engine by itself."""

    def select(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table."""
        parsed = _parsed(tx.catalog, query, values)
        if not tx.tables:  # nothing is staged, so the rows are those of the current versions
            return run_parsed(tx.catalog, parsed).read_all()
        files = _files(tx, parsed)
        if parsed.tree is not None:
            reject_collated_query(parsed.tree, (each.schema for each in files.values()))
        with sandbox(tx.catalog, files) as (_, answer):
            return answer(parsed.kind, parsed.tree).read_all()

    def rows(
        self,
        tx: MultiTableTransaction,
        query: str,
        values: Mapping[str, Any],
        arrange: Arrange | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows of a query as Arrow batches, computed while they are read."""
        parsed = _parsed(tx.catalog, query, values)
        if parsed.kind != "query" or parsed.tree is None:
            raise InvalidQueryError("EXPLAIN returns no rows to store", help="Write a query.")
        files = _files(tx, parsed)
        reject_collated_query(parsed.tree, (each.schema for each in files.values()))
        with sandbox(tx.catalog, files) as (stack, answer):
            described = answer("describe", parsed.tree).read_all()
            names, types = (described[each].to_pylist() for each in described.column_names[:2])
            tree = _arranged(parsed.tree, types, (arrange or as_they_are)(names))
            rows = answer("query", tree)
            if any(has_variant(each.schema) for each in files.values()):
                marked = rows.schema.with_metadata(HAS_VARIANTS)
                rows = pa.RecordBatchReader.from_batches(marked, rows)
            return closing_reader(stack.pop_all(), rows)

    def fetch(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table, for another step of the same statement."""
        return self.rows(tx, query, values).read_all()

    def vacuum_options(self) -> dict[str, Any]:
        """Return no options: files are listed in this process."""
        return {}

    def result(self, rows: pa.Table) -> pa.Table:
        """Return the result unchanged."""
        return rows


def is_path(parts: Sequence[str]) -> bool:
    """Return whether the parts of a table's name are delta.`/path`."""
    return len(parts) == 2 and parts[0].lower() in _PATH_FORMATS and "/" in parts[1]


def table_name(
    catalog: BaseCatalog,
    parts: Sequence[str],
    is_staged: Callable[[str], bool] = lambda _: False,
    *,
    location: Callable[[str], str] = absolute_location,
    spelling: Callable[[str], str] | None = None,
) -> str:
    """Return the full name of a table that a statement refers to by name or by path.

    `location` converts a path to a location, and `spelling` returns a name in the catalog's
    spelling.
    """
    if is_path(parts):
        for row in tables_at(catalog.store.query, location(parts[1])):
            if row.dropped_at_ms is None:
                return join_table_name(row.namespace, row.name)
        raise InvalidQueryError(
            f"no table of {catalog.uri} has its files in {parts[1]}",
            help="Write the table's name, or import the table with catalog.import_table.",
        )
    if len(parts) > 2:
        raise InvalidQueryError(
            f"{'.'.join(parts)} has too many parts for the name of a table",
            help="Write `name` or `namespace.name`.",
        )
    namespace = parts[0] if len(parts) == 2 else DEFAULT_NAMESPACE
    name = join_table_name(namespace, parts[-1])
    if is_staged(name):
        return name
    return spelling_of(catalog, name) if spelling is None else spelling(name)


def _parsed(catalog: BaseCatalog, query: str, values: Mapping[str, Any]) -> QueryText:
    """Parse a query, and replace the paths of its tables by their names."""
    try:
        found = parse_query(query, dialect=StatementDialect, bind=partial(_bound, values=values))
    except RecursionError as error:
        raise InvalidQueryError(
            "the query is nested too deeply", help="Split it into parts with WITH."
        ) from error
    return replace(found, tables=tuple(_by_name(catalog, each) for each in found.tables))


def _bound(tree: exp.Expr, values: Mapping[str, Any]) -> exp.Expr:
    """Bind parameters, and name each column without a name by its expression, as Spark does."""
    if isinstance(tree, exp.Select):
        for each in tree.expressions:
            if isinstance(
                each, exp.Binary | exp.Func | exp.Literal | exp.Placeholder | exp.Bracket
            ):
                name = each.sql(dialect=StatementDialect, normalize_functions="lower")
                each.replace(exp.alias_(each.copy(), name, quoted=True))
    return bind(tree, values)


def _by_name(catalog: BaseCatalog, asked: QueriedTable) -> QueriedTable:
    if not is_path((asked.namespace or "", asked.name)):
        return asked
    name = table_name(catalog, (asked.namespace or "", asked.name))
    namespace, short = split_table_name(name)
    return replace(asked, namespace=namespace, name=short)


def _files(tx: MultiTableTransaction, parsed: QueryText) -> dict[str, LiveFiles]:
    """Return the files of the tables of a query, and add what is read to the read set."""
    assert parsed.tree is not None
    return {each.place: _files_of(tx, parsed.tree, each) for each in parsed.tables}


def _files_of(tx: MultiTableTransaction, tree: exp.Query, asked: QueriedTable) -> LiveFiles:
    parts = (asked.namespace or DEFAULT_NAMESPACE, asked.name)
    name = table_name(tx.catalog, parts, tx.creates)
    if asked.version is not None or asked.timestamp is not None:
        table = CatalogTable(tx.catalog, tx.catalog.resolve(name, fresh=True))
        snapshot = table.snapshot(asked.version, timestamp=asked.timestamp)
        return live_files(tx.catalog, tree, asked.place, snapshot)
    stage = tx.target(name)
    condition = condition_on(tree, asked.place, stage.schema)
    predicate = None if condition is None else stage.predicate(condition)
    files = stage.files(predicate)
    stage.read(whole_table=predicate is None, predicate=predicate, files=files)
    return stage.live(files)


def _arranged(tree: exp.Query, types: Sequence[str], stored: Sequence[Stored]) -> exp.Query:
    """Return a query that computes the columns to store, with the types of the table."""
    # Name the columns of the inner query as in the table, because DuckDB's errors (such as a failed
    # cast) contain these names.
    known = {each.column: each.name for each in stored}
    stored = [replace(each, column=None) if _is_null(tree, each) else each for each in stored]
    names = [identifier(known.get(number, f"c{number}")) for number in range(len(types))]
    columns = []
    for name, kind in zip(names, types, strict=True):
        column = exp.column(name.copy())
        column.type = exp.DataType.build(kind, dialect="duckdb")
        columns.append(column)
    selected = [exp.alias_(_value(each, columns), identifier(each.name)) for each in stored]
    inner = exp.Subquery(
        this=tree.copy(), alias=exp.TableAlias(this=identifier("q"), columns=names)
    )
    return exp.Select(expressions=selected).from_(inner)


def _is_null(tree: exp.Query, stored: Stored) -> bool:
    """Return whether NULL literals, which DuckDB types as integers, are stored as variants."""
    if stored.type is None or not has_variant(stored.type):
        return False
    number = stored.column
    if number is None or not isinstance(tree, exp.Select):
        return False
    rows: Sequence[exp.Expr] = [tree]
    if tree.is_star:
        source = tree.args["from_"].this
        source = source if isinstance(source, exp.Values) else source.this
        if len(tree.expressions) > 1 or not isinstance(source, exp.Values):
            return False
        rows = source.expressions
    values = [each.unalias() for row in rows for each in row.expressions[number : number + 1]]
    return len(values) == len(rows) and all(isinstance(each, exp.Null) for each in values)


def _value(stored: Stored, columns: Sequence[exp.Expr]) -> exp.Expr:
    if stored.column is not None:
        value: exp.Expr = columns[stored.column].copy()
    elif stored.value is not None:
        value = parse_expression(stored.value, escapes=True)
    else:
        value = exp.null()
    if stored.type is not None:
        return cast_to(value, stored.type)
    other = _OTHER_INTEGERS.get(value.type.this) if value.type is not None else None
    return value if other is None else exp.cast(value, other)
