"""QueryBuilder: deltalake's class for SQL queries, which also accepts `deltasql://` tables."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow.compute as pc
import sqlglot
from arro3.core import RecordBatchReader
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltasql import deltalake_internals
from deltasql.api.arguments import check_text
from deltasql.api.catalog.query import closing_reader
from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogEngineError, TxnLogMirrorError
from deltasql.model.predicates.query_conditions import condition_on
from deltasql.storage.location import address_url, data_addresses, parse_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_FEW_FILES = 1_000
# Settings that change the meaning of names and literals in a query.
_MEANINGS = ("datafusion.sql_parser.", "datafusion.execution.time_zone")


class QueryBuilder(deltalake.QueryBuilder):
    """SQL queries over registered tables, run by DataFusion.

    If a query needs only a few files of a `deltasql://` table, the database selects them, and
    DataFusion reads only these files. Otherwise DataFusion reads the published log. If nothing is
    published, because the mirror is off or quarantined, DataFusion gets the list of all files. If
    DataFusion cannot read these files, DuckDB runs the query; with deltalake before 1.5.1, whose
    `count(*)` of a partitioned table is wrong, DuckDB runs every query on a `deltasql://` table.
    """

    def __init__(self, session_config: dict[str, str] | None = None) -> None:
        super().__init__(*deltalake_internals.session_arguments(session_config))
        self._reset(session_config, {})
        # True while queries can only use the registered tables, and no setting changes what a query
        # means. Any statement that is not a query sets it to False, because it may create a view or
        # drop a table.
        self._has_only_tables = not any(key.startswith(_MEANINGS) for key in session_config or {})

    @classmethod
    def take_over(cls, stock: Any, registered: Mapping[str, Any]) -> None:
        """Turn a deltalake QueryBuilder into this class; its session may contain other objects."""
        theirs = type(stock)
        is_stock = theirs is deltalake.QueryBuilder
        # The methods of a user's subclass take precedence over those of this class.
        stock.__class__ = cls if is_stock else type(theirs.__name__, (theirs, cls), {})
        stock._reset(None, registered)
        stock._has_only_tables = False

    def _reset(self, session_config: dict[str, str] | None, registered: Mapping[str, Any]) -> None:
        self._session_config = session_config
        self._tables: dict[str, Any] = dict(registered)
        # What DataFusion reads for each table, or None for a table that DataFusion cannot read.
        self._datafusion_tables: dict[str, Any] = dict(registered)
        self._pending: dict[str, RawTable] = {}
        self._unpublished: dict[str, RawTable] = {}

    def register(self, table_name: str, delta_table: deltalake.DeltaTable) -> QueryBuilder:
        """Register a table for queries, at the version that `delta_table` has now."""
        raw = deltalake_internals.raw_table(delta_table)
        check_text(table_name)
        if not isinstance(raw, RawTable):
            deltalake_internals.session_of(self).register(table_name=table_name, delta_table=raw)
            self._tables[table_name] = raw
            self._datafusion_tables[table_name] = raw
            return self
        deltalake_internals.require("QueryBuilder")
        is_known = table_name in self._tables
        if is_known:
            self._register_pending()
        self._tables[table_name] = self._pending[table_name] = copy(raw)
        if is_known or not table_name.isidentifier():
            self._datafusion_tables.pop(table_name, None)
            self._register_pending()  # DataFusion applies its own rules to such names
        return self

    def execute(self, sql: str) -> RecordBatchReader:
        """Run a query; rows are computed while the result is read."""
        can_narrow = self._has_only_tables and deltalake_internals.COUNTS_ROWS
        narrowed = self._narrowed_session(sql) if can_narrow else None
        if narrowed is not None:
            found: RecordBatchReader = narrowed.execute(sql)
            return found
        self._register_pending()
        if not self._unpublished:
            return super().execute(sql)
        return RecordBatchReader.from_arrow(_run_in_duckdb(sql, self._tables))

    def _register_pending(self) -> None:
        """Register the remaining tables with DataFusion."""
        while self._pending:
            name, raw = self._pending.popitem()
            whole = self._whole_table(name, raw)
            if whole is None:
                self._unpublished[name] = raw
            else:
                session = deltalake_internals.session_of(self)
                session.register(table_name=name, delta_table=whole)

    def _narrowed_session(self, sql: str) -> Any:
        """Return a session with only the files that this query needs; None if it needs all."""
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
        parts = {name: self._needed_files(query, name) for name in names}
        if all(part is None for part in parts.values()):
            return None
        session = deltalake_internals.query_session(self._session_config)
        for name, part in parts.items():
            table = self._whole_table(name, self._tables[name]) if part is None else part
            if table is None:
                return None
            session.register(table_name=name, delta_table=table)
        return session

    def _needed_files(self, query: exp.Expr, name: str) -> Any:
        """Return a table of the files that a query needs; None if it may need all files."""
        raw = self._tables[name]
        if not isinstance(raw, RawTable):
            return None
        condition = condition_on(query, name, raw.snapshot.schema)
        if condition is None:
            return None
        listed = raw.listed(condition)
        is_few = len(listed) <= max(_FEW_FILES, raw.snapshot.next_file_id // 4)
        return _temporary_table(raw, listed) if is_few else None

    def _whole_table(self, name: str, raw: Any) -> Any:
        """Return the table in a form that DataFusion reads; None if DataFusion cannot read it."""
        if not deltalake_internals.COUNTS_ROWS:
            return None
        if name not in self._datafusion_tables:
            try:
                self._datafusion_tables[name] = raw.published()
            except TxnLogMirrorError:
                self._datafusion_tables[name] = _temporary_table(raw, raw.listed())
        return self._datafusion_tables[name]


def _run_in_duckdb(sql: str, tables: Mapping[str, Any]) -> pa.RecordBatchReader:
    try:
        query = sqlglot.parse_one(sql, read="postgres")
    except (SqlglotError, RecursionError) as error:
        raise TxnLogEngineError(f"cannot parse the query: {error}", engine="duckdb") from error
    if not isinstance(query, exp.Query):
        raise TxnLogEngineError(
            "the statement is not a query", engine="duckdb", help="Write a SELECT statement."
        )
    config = next(raw.catalog.config for raw in tables.values() if isinstance(raw, RawTable))
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(config, name="duckdb"))
        relations = {
            name: engine.scan(raw.live(raw.listed()))
            if isinstance(raw, RawTable)
            else engine.rows(deltalake_internals.all_rows(raw))
            for name, raw in tables.items()
        }
        result = engine.stream(engine.query(query, **relations))
        return closing_reader(stack.pop_all(), result)


def _temporary_table(raw: RawTable, listed: pa.Table) -> Any:
    """Return a deltalake table of the listed files, made from a temporary log with one commit.

    Returns None if the files are not local, or have deletion vectors.
    """
    is_local = parse_location(raw.row.location).is_local
    if not is_local or pc.any(pc.not_equal(listed["deletion_vector"], "")).as_py():
        return None
    with tempfile.TemporaryDirectory(prefix="deltasql-") as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        lines = map(_line, _actions(raw, listed))
        Path(log, f"{0:020d}.json").write_text("\n".join(lines), encoding="utf-8")
        return deltalake_internals.open_raw_table(folder, None, None, purpose="QueryBuilder")


def _actions(raw: RawTable, listed: pa.Table) -> list[dict[str, object]]:
    snapshot = raw.snapshot
    info = {"timestamp": snapshot.committed_at_ms, "operation": "READ"}
    actions: list[dict[str, object]] = [
        {"commitInfo": {"inCommitTimestamp": snapshot.committed_at_ms, **info}},
        {"protocol": snapshot.protocol.body()},
        {"metaData": snapshot.metadata.body()},
    ]
    paths = data_addresses(raw.row.location, listed["path"].to_pylist())
    columns = ("partition", "size", "modification_time", "stats")
    rows = zip(paths, *(listed[name].to_pylist() for name in columns), strict=True)
    for path, partition, size, modified, stats in rows:
        add = {
            "path": address_url(path),
            "partitionValues": json.loads(partition or "{}"),
            "size": size,
            "modificationTime": modified,
            "dataChange": True,
        }
        actions.append({"add": {**add, "stats": stats} if stats else add})
    return actions


def _line(action: dict[str, object]) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)
