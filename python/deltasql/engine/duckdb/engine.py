"""The engine for what fits one machine: DuckDB in this process, out of core, Arrow in and out."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from deltasql.engine.base import FILE, ROW
from deltasql.engine.duckdb.connection import duckdb_errors
from deltasql.engine.duckdb.instance import NUMBERS, EngineDatabase, open_database
from deltasql.engine.duckdb.ranks import rank_query
from deltasql.engine.duckdb.relation import DuckDbRelation, Held, own_relation
from deltasql.engine.duckdb.scan import (
    TableShape,
    as_pattern,
    empty_query,
    files_query,
    identifier,
    literal,
)
from deltasql.engine.duckdb.types import delta_types, duckdb_types
from deltasql.engine.files.stored_files import StoredFiles
from deltasql.engine.inputs import batches, is_stream
from deltasql.engine.parquet.writer import write_batches
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.predicates.query_conditions import named_columns
from deltasql.model.schema.schema import has_nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import duckdb
    from sqlglot import exp

    from deltasql.config import Config
    from deltasql.engine.base import Relation, WritePlan
    from deltasql.engine.files.live_files import LiveFile, LiveFiles
    from deltasql.model.actions import AddFile

BATCH_ROWS = 122_880  # a row group of DuckDB
_FEW_FILES = 100


class DuckDbEngine:
    """Runs relational work in this process; nothing is opened before it is needed."""

    name = "duckdb"
    dialect = "duckdb"
    writes_at_once = 1  # one write already takes all cores

    def __init__(self, config: Config) -> None:
        self._config = config
        self._database_in_use: EngineDatabase | None = None
        self._numbers: Iterator[int | str] = NUMBERS
        self._held: dict[str, str] = {}
        """What has a name in DuckDB, with the statement that drops it; Arrow rows have none."""
        self._unneeded: deque[tuple[str, str]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._database_in_use is not None:
            self._database_in_use.release(self._held)
            self._database_in_use = None
        self._held.clear()
        self._unneeded.clear()

    def __del__(self) -> None:
        """Give the connection back that a forgotten transaction, or an unread answer, held."""
        if getattr(self, "_database_in_use", None) is not None and not sys.is_finalizing():
            self.__exit__(None, None, None)

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the table's columns in their order."""
        # DuckDB reads no more than microseconds of a timestamp with a zone, or in INT96.
        by_arrow = has_nanoseconds(files.schema)
        local = [] if by_arrow else [f for f in files.files if f.address.startswith("/")]
        also = (FILE, ROW) if positions else ()
        columns = (*files.schema.names, *also)
        if not files.files:
            return DuckDbRelation(empty_query(files.schema, also), columns)
        needs: list[Held] = []
        queries = list(self._local(files, local, needs, positions=positions)) if local else []
        if len(local) < len(files.files):
            stored = StoredFiles(
                files, self._config.storage, positions=positions, also_local=by_arrow
            )
            found = self._scanned(stored)
            if not local:
                return replace(found, stored=stored)
            queries.append(found.sql)
            needs += found.needs
        return DuckDbRelation("\nUNION ALL ".join(queries), columns, tuple(needs))

    def rows(self, data: object) -> Relation:
        """Return what a user handed in; a stream is kept, on disk when it is large."""
        if isinstance(data, DuckDbRelation):
            return data
        given = _as_taken(batches(data))
        if not is_stream(data):
            return self._scanned(given.read_all())
        failed: list[BaseException] = []

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from given
            except BaseException as error:
                failed.append(error)
                raise

        stream = pa.RecordBatchReader.from_batches(given.schema, read())
        # The bare stream: a reader would be read ahead by threads of Arrow, which wait for
        # Python while others wait for them.
        source = self._held_source(stream.__arrow_c_stream__())
        try:
            return self._kept(f"FROM {source.name}", tuple(given.schema.names))
        except TxnLogEngineError:
            if failed:
                raise failed[0] from None
            raise

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the answer to a query, computed when it is needed."""
        used = {name: self._narrowed(own_relation(each), sql) for name, each in relations.items()}
        text = sql.sql(dialect=self.dialect, identify=True, copy=False)
        if used:
            # Not materialized: each use reads only the columns and rows that it needs.
            named = [
                f"{identifier(name)} AS NOT MATERIALIZED ({relation.sql})"
                for name, relation in used.items()
            ]
            whole = f"FROM ({text})" if sql.args.get("with_") else text
            text = f"WITH {', '.join(named)}\n{whole}"
        needs = tuple({id(n): n for each in used.values() for n in each.needs}.values())
        selected = sql.named_selects
        if "*" in selected or "" in selected:
            return DuckDbRelation(text, self._columns(text), needs)
        return DuckDbRelation(text, tuple(selected), needs)

    def keep(self, relation: Relation) -> Relation:
        """Compute rows once; large ones go to disk."""
        own = own_relation(relation)
        return own if own.table is not None else self._kept(own.sql, own.columns)

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Give every row a number in a new column; what is a table already has one."""
        own = own_relation(relation)
        if own.rows is not None:
            numbers = pa.array(range(len(own.rows)), pa.int64())
            return self._scanned(own.rows.append_column(name, numbers))
        kept = own_relation(self.keep(own))
        query = f"FROM {kept.table} SELECT *, rowid AS {identifier(name)}"
        return DuckDbRelation(query, (*own.columns, name), kept.needs)

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add the rank of each key by a window."""
        return self.query(rank_query(relation.columns, keys, bits), rows=relation)

    def collect(self, relation: Relation) -> pa.Table:
        """Return rows as Arrow: for small results."""
        with duckdb_errors():
            found = self._connection.execute(own_relation(relation).sql).to_arrow_table()
        return found.cast(delta_types(found.schema))

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow, batch by batch, in bounded memory."""
        # On a connection of its own, since one connection has one open answer.
        cursor = self._cursor(own_relation(relation).needs)
        return _stream(cursor, own_relation(relation), ends=cursor)

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics; one without a commit is invisible."""
        # Nothing else is asked of the connection before the last row is written.
        return write_batches(_stream(self._connection, own_relation(relation)), plan)

    # How relations come about

    def _local(
        self, files: LiveFiles, local: list[LiveFile], needs: list[Held], *, positions: bool
    ) -> Iterator[str]:
        """Yield the queries over files that DuckDB opens itself; `needs` gets what they use."""
        whole = [file for file in local if not file.vector]
        deleted = [file for file in local if file.vector]
        groups = [each for some in (whole, deleted) if some for each in files.by_names(some)]
        # One list of all files: its places are those that are asked for.
        is_whole = len(whole) == len(files.files) and len(groups) == 1
        files_table = deleted_table = ""
        if files.partition_columns or (positions and not is_whole):
            wanted = {id(file): place for place, file in enumerate(files.files)}
            columns: dict[str, Any] = {
                "filename": pa.array([file.address for file in local], pa.string()),
                FILE: pa.array([wanted[id(file)] for file in local], pa.int64()),
            }
            for place, (_, values) in enumerate(files.partition_values(local)):
                columns[f"p{place}"] = values
            needs.append(self._held_source(pa.table(columns)))
            files_table = needs[-1].name
        if deleted:
            needs.append(self._held_source(files.deleted(deleted)))
            deleted_table = needs[-1].name
        shape = TableShape(
            files.schema,
            files.partition_columns,
            files.column_mapping_mode,
            files_table=files_table,
            deleted_table=deleted_table,
        )
        for schema, group in groups:
            records = [file.records for file in group if file.records is not None]
            number_of = "CAST(r.file_index AS BIGINT)" if is_whole else f"p.{identifier(FILE)}"
            also = (
                f"{number_of} AS {identifier(FILE)}",
                f"r.file_row_number AS {identifier(ROW)}",
            )
            yield files_query(
                replace(shape, schema=schema),
                self._list([as_pattern(file.address) for file in group], needs),
                has_deletions=bool(group[0].vector),
                also=also if positions else (),
                rows=sum(records) if len(records) == len(group) else None,
            )

    def _narrowed(self, relation: DuckDbRelation, sql: exp.Query) -> DuckDbRelation:
        """Leave out columns that a query does not name: DuckDB would ask a stream for all."""
        if relation.stored is None:
            return relation
        named = named_columns(sql)
        if named is None:
            return relation
        wanted = [name for name in relation.columns if name.casefold() in named]
        return self._scanned(relation.stored.narrowed(wanted))

    def _kept(self, query: str, columns: tuple[str, ...]) -> DuckDbRelation:
        """Put the answer to a query into a table."""
        self._tidy()
        name = f"kept_{next(self._numbers)}"
        with duckdb_errors():
            self._connection.execute(f"CREATE TABLE {name} AS {query}")
        held = Held(name, self._unneeded, drop=f"DROP TABLE {name}")
        self._held[name] = held.drop
        return DuckDbRelation(f"FROM {name}", columns, (held,), table=name)

    def _scanned(self, rows: pa.Table | StoredFiles) -> DuckDbRelation:
        """Return a query over rows of Arrow that may have conditions.

        DuckDB lets Arrow compare columns where it can, and to Arrow NaN is above no number. What
        has been computed with it compares itself, so floats are turned around twice.
        """
        source = self._held_source(rows)
        columns = [
            f"-(-{identifier(each.name)}) AS {identifier(each.name)}"
            if pa.types.is_floating(each.type)
            else identifier(each.name)
            for each in rows.schema
        ]
        return DuckDbRelation(
            f"FROM {source.name} SELECT {', '.join(columns)}",
            tuple(rows.schema.names),
            (source,),
            rows=rows if isinstance(rows, pa.Table) else None,
        )

    def _held_source(self, rows: Any) -> Held:
        """Give Arrow rows a name in DuckDB."""
        self._tidy()
        held = Held(f"source_{next(self._numbers)}", self._unneeded, value=rows)
        with duckdb_errors():
            _make_known(self._connection, held)
        self._held[held.name] = ""
        return held

    def _list(self, patterns: list[str], needs: list[Held]) -> str:
        """Return the SQL for a list of files: a variable if they are many, for DuckDB's parser."""
        if len(patterns) <= _FEW_FILES:
            return f"[{', '.join(map(literal, patterns))}]"
        name = f"list_{next(self._numbers)}"
        held = Held(name, self._unneeded, drop=f"RESET VARIABLE {name}", value=patterns)
        needs.append(held)
        with duckdb_errors():
            _make_known(self._connection, held)
        self._held[name] = held.drop
        return f"getvariable('{name}')"

    def _columns(self, query: str) -> tuple[str, ...]:
        with duckdb_errors():
            described = self._connection.execute(f"DESCRIBE {query}").fetchall()
        return tuple(str(name) for name, *_ in described)

    def _tidy(self) -> None:
        """Drop what no relation refers to any more."""
        while self._unneeded:
            name, drop = self._unneeded.popleft()
            with duckdb_errors():
                if drop:
                    self._connection.execute(drop)
                else:
                    self._connection.unregister(name)
            self._held.pop(name, None)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._database.connection

    @property
    def _database(self) -> EngineDatabase:
        if self._database_in_use is None:
            self._database_in_use = open_database(self._config.engine)
        return self._database_in_use

    def _cursor(self, needs: Sequence[Held]) -> duckdb.DuckDBPyConnection:
        """Open a connection that knows some of what this one knows; tables are known to all."""
        with duckdb_errors():
            cursor = self._database.cursor()
            for held in needs:
                _make_known(cursor, held)
        return cursor


def _stream(
    connection: duckdb.DuckDBPyConnection,
    relation: DuckDbRelation,
    ends: AbstractContextManager[object] | None = None,
) -> pa.RecordBatchReader:
    """Return rows batch by batch; `ends` is closed after the last of them."""
    with duckdb_errors():
        reader = connection.execute(relation.sql).to_arrow_reader(BATCH_ROWS)
    schema = delta_types(reader.schema)

    def read(_: Relation = relation) -> Iterator[pa.RecordBatch]:
        same = schema.equals(reader.schema)
        with ends or nullcontext(), duckdb_errors():
            for batch in reader:
                yield batch if same else batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, read())


def _as_taken(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the same rows with types that DuckDB takes as they are."""
    schema = duckdb_types(reader.schema)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))


def _make_known(connection: duckdb.DuckDBPyConnection, held: Held) -> None:
    if not held.drop:
        connection.register(held.name, held.value)
    elif held.value is not None:
        connection.execute(f"SET VARIABLE {held.name} = ?", [held.value])
