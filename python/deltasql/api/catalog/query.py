"""`QueryBuilder`: SQL over tables, ours and deltalake's."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import sqlglot
from arro3.core import RecordBatchReader
from deltalake._internal import PyQueryBuilder
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.api.deltalake_compat.handle.arguments import check_text_given
from deltasql.api.deltalake_compat.handle.excerpt import can_excerpt, excerpt
from deltasql.api.deltalake_compat.handle.table import RawTable
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogEngineError, TxnLogMirrorError
from deltasql.model.predicates.query_conditions import condition_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FEW_FILES = 1_000
# Settings by which names and literals of a query mean something else.
_MEANINGS = ("datafusion.sql_parser.", "datafusion.execution.time_zone")


class QueryBuilder(deltalake.QueryBuilder):
    """Queries by name over registered tables, answered by DataFusion.

    A query that asks one of our tables for some of its files is shown those alone, found in SQL.
    Otherwise DataFusion reads what is published. Where nothing is, since the mirror is off or
    shut, it is shown all files; DuckDB answers in its place where that is not possible.
    """

    def __init__(self, session_config: dict[str, str] | None = None) -> None:
        super().__init__(session_config)
        self._begin(session_config, {})
        # DataFusion's session has nothing but tables: no views, and none was dropped.
        self._has_only_tables = not any(key.startswith(_MEANINGS) for key in session_config or {})

    @classmethod
    def take_over(cls, stock: Any, shown: Mapping[str, Any]) -> None:
        """Make an object of the stock class one of ours; what else its session has is not known."""
        theirs = type(stock)
        is_stock = theirs is deltalake.QueryBuilder
        # A subclass of others keeps its methods, before ours.
        stock.__class__ = cls if is_stock else type(theirs.__name__, (theirs, cls), {})
        stock._begin(None, shown)
        stock._has_only_tables = False

    def _begin(self, session_config: dict[str, str] | None, shown: Mapping[str, Any]) -> None:
        self._session_config = session_config
        self._tables: dict[str, Any] = dict(shown)
        self._shown: dict[str, Any] = dict(shown)
        self._waiting: dict[str, RawTable] = {}
        self._unpublished: dict[str, RawTable] = {}

    def register(self, table_name: str, delta_table: deltalake.DeltaTable) -> QueryBuilder:
        """Give a table a name in queries, at the version that its handle has now."""
        raw: Any = delta_table._table
        check_text_given(table_name)
        if not isinstance(raw, RawTable):
            self._query_builder.register(table_name=table_name, delta_table=raw)
            self._tables[table_name] = self._shown[table_name] = raw
            return self
        is_known = table_name in self._tables
        if is_known:
            self._show_waiting()
        self._tables[table_name] = self._waiting[table_name] = copy(raw)
        if is_known or not table_name.isidentifier():
            self._shown.pop(table_name, None)
            self._show_waiting()  # DataFusion has rules for such names
        return self

    def execute(self, sql: str) -> RecordBatchReader:
        """Return the answer to a query, computed while it is read."""
        narrowed = self._narrowed(sql) if self._has_only_tables else None
        if narrowed is not None:
            return narrowed.execute(sql)
        self._show_waiting()
        if not self._unpublished:
            return super().execute(sql)
        return RecordBatchReader.from_arrow(_duckdb_answer(sql, self._tables))

    def _show_waiting(self) -> None:
        """Register tables with DataFusion that it could do without until now."""
        while self._waiting:
            name, raw = self._waiting.popitem()
            shown = self._whole(name, raw)
            if shown is None:
                self._unpublished[name] = raw
            else:
                self._query_builder.register(table_name=name, delta_table=shown)

    def _narrowed(self, sql: str) -> PyQueryBuilder | None:
        """Return a session for one query whose tables have only the files that it needs."""
        try:
            query = sqlglot.parse_one(sql, read="postgres")
        except (SqlglotError, RecursionError):
            query = None
        if not isinstance(query, exp.Query):
            self._has_only_tables = False
            return None
        defined = {each.alias for each in query.find_all(exp.CTE)}
        names = {table.name for table in query.find_all(exp.Table)} - defined
        if not names <= self._tables.keys() - defined:
            return None
        parts = {name: self._part(query, name) for name in names}
        if all(part is None for part in parts.values()):
            return None
        session = PyQueryBuilder(self._session_config)
        for name, part in parts.items():
            shown = self._whole(name, self._tables[name]) if part is None else part
            if shown is None:
                return None
            session.register(table_name=name, delta_table=shown)
        return session

    def _part(self, query: exp.Expr, name: str) -> Any:
        """Return a table of the files that a query needs; None when it may need all of them."""
        raw = self._tables[name]
        if not isinstance(raw, RawTable):
            return None
        condition = condition_on(query, name, raw.snapshot.schema)
        if condition is None:
            return None
        listed = raw.listed(condition)
        is_few = len(listed) <= max(_FEW_FILES, raw.snapshot.next_file_id // 4)
        return excerpt(raw, listed) if is_few and can_excerpt(raw, listed) else None

    def _whole(self, name: str, raw: Any) -> Any:
        """Return what DataFusion reads a whole table by; None when there is no such thing."""
        if name not in self._shown:
            try:
                self._shown[name] = raw.published()
            except TxnLogMirrorError:
                listed = raw.listed()
                self._shown[name] = excerpt(raw, listed) if can_excerpt(raw, listed) else None
        return self._shown[name]


def _duckdb_answer(sql: str, tables: Mapping[str, Any]) -> pa.RecordBatchReader:
    try:
        query = sqlglot.parse_one(sql, read="postgres")
    except (SqlglotError, RecursionError) as error:
        raise TxnLogEngineError(f"cannot parse the query: {error}", engine="duckdb") from error
    if not isinstance(query, exp.Query):
        raise TxnLogEngineError(
            "only queries can be answered", engine="duckdb", help="Write a SELECT."
        )
    config = next(raw.catalog.config for raw in tables.values() if isinstance(raw, RawTable))
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(config, name="duckdb"))
        relations = {
            name: engine.scan(raw.live(raw.listed()))
            if isinstance(raw, RawTable)
            else engine.rows(raw.scan())
            for name, raw in tables.items()
        }
        answer = engine.stream(engine.query(query, **relations))
        rows = _while_open(stack.pop_all(), answer)
        next(rows)  # begun, it closes the engine also when nobody reads it
    return pa.RecordBatchReader.from_batches(answer.schema, rows)


def _while_open(engine: ExitStack, answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield an empty batch, then those of an answer."""
    with engine:
        yield pa.RecordBatch.from_pylist([], answer.schema)
        yield from answer
