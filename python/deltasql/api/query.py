"""`QueryBuilder`: SQL over tables, ours and deltalake's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import sqlglot
from arro3.core import RecordBatchReader
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql.api.raw.table import RawTable
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogEngineError, TxnLogMirrorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class QueryBuilder(deltalake.QueryBuilder):
    """Queries by name over registered tables, answered by DataFusion.

    DataFusion reads what is published. While a table is not, and its mirror is off or shut,
    DuckDB answers in its place.
    """

    def __init__(self, session_config: dict[str, str] | None = None) -> None:
        super().__init__(session_config)
        self._tables: dict[str, Any] = {}
        self._unpublished: dict[str, RawTable] = {}

    def register(self, table_name: str, delta_table: deltalake.DeltaTable) -> QueryBuilder:
        """Give a table a name in queries."""
        raw: Any = delta_table._table
        self._tables[table_name] = raw
        self._unpublished.pop(table_name, None)
        if isinstance(raw, RawTable):
            try:
                raw = raw.published()
            except TxnLogMirrorError:
                self._unpublished[table_name] = raw
                return self
        self._query_builder.register(table_name=table_name, delta_table=raw)
        return self

    def execute(self, sql: str) -> RecordBatchReader:
        """Return the answer to a query, computed while it is read."""
        if not self._unpublished:
            return super().execute(sql)
        return RecordBatchReader.from_arrow(_duckdb_answer(sql, self._tables))


def _duckdb_answer(sql: str, tables: Mapping[str, Any]) -> pa.RecordBatchReader:
    try:
        query = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError as error:
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
    return pa.RecordBatchReader.from_batches(answer.schema, rows)


def _while_open(engine: ExitStack, answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with engine:
        yield from answer
