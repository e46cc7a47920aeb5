"""The engine that runs in this process: DuckDB, with Arrow data as input and output."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from sqlglot import exp

from deltasql._core import RowSet
from deltasql.engine.base import FILE, ROW
from deltasql.engine.duckdb.connection import NUMBERS, EngineDatabase, duckdb_errors, open_database
from deltasql.engine.duckdb.scan import (
    VARIANT,
    TableShape,
    as_pattern,
    empty_query,
    files_query,
    identifier,
    literal,
)
from deltasql.engine.inputs import batches, duckdb_types, is_stream
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.duckdb_results import arrow_reader, arrow_table
from deltasql.model.predicates.query_conditions import named_columns
from deltasql.model.schema.schema import has_nanoseconds, has_variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import duckdb

    from deltasql.config import Config
    from deltasql.engine.base import Relation, WritePlan
    from deltasql.engine.files.arrow_scan import ArrowScan
    from deltasql.engine.files.live_files import LiveFile, LiveFiles
    from deltasql.model.actions import AddFile

BATCH_ROWS = 122_880  # a row group of DuckDB
_FEW_FILES = 100


class NamedObject:
    """A table, registered Arrow data or a variable in DuckDB.

    When no relation refers to the object any more, it adds itself to the engine's queue of objects
    to drop.
    """

    __slots__ = ("_unused", "drop", "name", "value")

    def __init__(
        self, name: str, unused: deque[tuple[str, str]], *, drop: str = "", value: Any = None
    ) -> None:
        """`drop` is the statement that drops the object. It is empty for registered Arrow data."""
        self.name, self.drop, self.value = name, drop, value
        self._unused = unused

    def __del__(self) -> None:
        # Do not drop the object here: this may run in any thread, even during a query.
        self._unused.append((self.name, self.drop))


@dataclass(frozen=True, slots=True)
class DuckDbRelation:
    """Rows that DuckDB can compute."""

    sql: str
    columns: tuple[str, ...]
    needs: tuple[NamedObject, ...] = field(default=(), repr=False, compare=False)
    table: str | None = None
    """The table that holds exactly these rows, if there is one."""
    scan: ArrowScan | None = field(default=None, repr=False)
    """The Arrow scan that provides the rows, if DuckDB reads none of the files itself."""
    rows: pa.Table | None = field(default=None, repr=False)
    """The rows, if they are in memory."""


def own_relation(relation: Relation) -> DuckDbRelation:
    """Narrow the type of a relation to `DuckDbRelation`; fail for a relation of another engine."""
    assert isinstance(relation, DuckDbRelation), "the relation belongs to another engine"
    return relation


class DuckDbEngine:
    """Runs queries in this process. It connects to DuckDB on first use."""

    name = "duckdb"
    dialect = "duckdb"
    writes_at_once = 1  # one write already uses all cores
    streams_full_joins = True

    def __init__(self, config: Config) -> None:
        self._config = config
        self._opened: EngineDatabase | None = None
        self._numbers: Iterator[int | str] = NUMBERS
        self._objects: dict[str, str] = {}
        """Objects of this engine in DuckDB: name to DROP statement; empty for Arrow data."""
        self._unused: deque[tuple[str, str]] = deque()
        """Objects that no relation refers to any more, to be dropped."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            self._opened.release(self._objects)
            self._opened = None
        self._objects.clear()
        self._unused.clear()

    def __del__(self) -> None:
        """Release the connection if a transaction was abandoned or a result was not read."""
        if getattr(self, "_opened", None) is not None and not sys.is_finalizing():
            self.__exit__(None, None, None)

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the columns in the order of the table."""
        # DuckDB truncates timestamps with a zone, and INT96 timestamps, to microseconds, so Arrow
        # reads tables that have nanoseconds. DuckDB would also change variant nulls to NULL.
        by_arrow = has_nanoseconds(files.schema) or has_variant(files.schema)
        local = [] if by_arrow else [f for f in files.files if f.address.startswith("/")]
        also = (FILE, ROW) if positions else ()
        columns = (*files.schema.names, *also)
        if not files.files:
            return DuckDbRelation(empty_query(files.schema, also), columns)
        needs: list[NamedObject] = []
        queries = (
            list(self._local_queries(files, local, needs, positions=positions)) if local else []
        )
        if len(local) < len(files.files):
            # lazy import: most queries read local files, which need no Arrow scan
            from deltasql.engine.files.arrow_scan import ArrowScan

            arrow_scan = ArrowScan(
                files, self._config.storage, positions=positions, also_local=by_arrow
            )
            found = self._arrow_relation(arrow_scan)
            if not local:
                return replace(found, scan=arrow_scan)
            queries.append(found.sql)
            needs += found.needs
        return DuckDbRelation("\nUNION ALL ".join(queries), columns, tuple(needs))

    def rows(self, data: object) -> Relation:
        """Return a user's data as a relation; the rows of a stream are stored in a table."""
        if isinstance(data, DuckDbRelation):
            return data
        given = _with_duckdb_types(batches(data))
        if not is_stream(data):
            return self._arrow_relation(given.read_all())
        failed: list[BaseException] = []

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from given
            except BaseException as error:
                failed.append(error)
                raise

        stream = pa.RecordBatchReader.from_batches(given.schema, read())
        # Pass the C stream, not the Python reader, to avoid a deadlock: Arrow's threads would
        # prefetch from a Python reader. For this they need the GIL, which this thread holds while
        # it waits for them.
        source = self._register(stream.__arrow_c_stream__())
        try:
            return self._materialize(f"FROM {source.name}", tuple(given.schema.names))
        except TxnLogEngineError:
            if failed:
                raise failed[0] from None
            raise

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the result of a query as a relation; the query runs when the relation is read."""
        used = {
            name: self._with_used_columns(own_relation(each), sql)
            for name, each in relations.items()
        }
        text = sql.sql(dialect=self.dialect, identify=True, copy=False)
        if "VARIANT" in text:
            text = sql.transform(struct_variant).sql(
                dialect=self.dialect, identify=True, copy=False
            )
        if used:
            # A relation that is not materialized is read at each use, but each use then reads
            # only the columns and rows that it needs.
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
        """Compute the rows now and store them in a table; large results spill to disk."""
        own = own_relation(relation)
        return own if own.table is not None else self._materialize(own.sql, own.columns, own.needs)

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Add a column with a unique number for every row: the `rowid` of a table in DuckDB."""
        own = own_relation(relation)
        if own.rows is not None:
            numbers = pa.array(range(len(own.rows)), pa.int64())
            return self._arrow_relation(own.rows.append_column(name, numbers))
        kept = own_relation(self.keep(own))
        query = f"FROM {kept.table} SELECT *, rowid AS {identifier(name)}"
        return DuckDbRelation(query, (*own.columns, name), kept.needs)

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add a column with the rank of each key, computed by a window function."""
        return self.query(_rank_query(relation.columns, keys, bits), rows=relation)

    def collect(self, relation: Relation) -> pa.Table:
        """Return all rows as an Arrow table. Use it only for small results."""
        own = own_relation(relation)
        with scan_errors(own.needs), duckdb_errors():
            found = arrow_table(self._connection.execute(own.sql))
        return found.cast(delta_types(found.schema))

    def positions(self, relation: Relation) -> dict[int, RowSet]:
        """Return the positions of rows by file. The rows are streamed to this process."""
        query = exp.select(*(exp.column(each, quoted=True) for each in (FILE, ROW))).from_("r")
        return RowSet.by_file(self.stream(self.query(query, r=relation)))

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow batches, in bounded memory."""
        # Use a separate connection, because a connection can have only one open result.
        cursor = self._cursor(own_relation(relation).needs)
        return _stream(cursor, own_relation(relation), close_after=cursor)

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics, and return an `add` action for each file."""
        from deltasql.engine.parquet.writer import write_batches  # lazy import: start-up time

        # No separate connection is needed: no other query runs until the last row is written.
        return write_batches(_stream(self._connection, own_relation(relation)), plan)

    def _local_queries(
        self, files: LiveFiles, local: list[LiveFile], needs: list[NamedObject], *, positions: bool
    ) -> Iterator[str]:
        """Yield queries over local files, which DuckDB opens itself.

        The named objects that the queries use are appended to `needs`.
        """
        whole = [file for file in local if not file.vector]
        deleted = [file for file in local if file.vector]
        groups = [each for some in (whole, deleted) if some for each in files.by_names(some)]
        # If all files are in one list, DuckDB's file index is the position in `files.files`, so
        # the positions need no table.
        is_single_list = len(local) == len(files.files) and len(groups) == 1
        position = {id(file): number for number, file in enumerate(files.files)}
        for schema, group in groups:
            files_table = deleted_table = ""
            if files.partition_columns or (positions and not is_single_list):
                columns: dict[str, Any] = {
                    "file_index": pa.array(range(len(group)), pa.uint64()),
                    FILE: pa.array([position[id(file)] for file in group], pa.int64()),
                }
                for number, (_, values) in enumerate(files.partition_values(group)):
                    columns[f"p{number}"] = values
                needs.append(self._register(pa.table(columns)))
                files_table = needs[-1].name
            if group[0].vector:
                needs.append(self._register(files.deleted(group)))
                deleted_table = needs[-1].name
            shape = TableShape(
                schema,
                files.partition_columns,
                files.column_mapping_mode,
                files_table=files_table,
                deleted_table=deleted_table,
                file_key="file_index",
            )
            records = [file.records for file in group if file.records is not None]
            file_number = (
                "CAST(r.file_index AS BIGINT)" if is_single_list else f"p.{identifier(FILE)}"
            )
            also = (
                f"{file_number} AS {identifier(FILE)}",
                f"r.file_row_number AS {identifier(ROW)}",
            )
            yield files_query(
                shape,
                self._file_list([as_pattern(file.address) for file in group], needs),
                has_deletions=bool(group[0].vector),
                also=also if positions else (),
                rows=sum(records) if len(records) == len(group) else None,
            )

    def _with_used_columns(self, relation: DuckDbRelation, sql: exp.Query) -> DuckDbRelation:
        """Narrow an Arrow scan to the columns of a query; otherwise all columns would be read."""
        if relation.scan is None:
            return relation
        named = named_columns(sql)
        if named is None:
            return relation
        wanted = [name for name in relation.columns if name.casefold() in named]
        return self._arrow_relation(relation.scan.narrowed(wanted))

    def _materialize(
        self, query: str, columns: tuple[str, ...], needs: Sequence[NamedObject] = ()
    ) -> DuckDbRelation:
        """Store the result of a query in a table."""
        self._drop_unused()
        name = f"stored_{next(self._numbers)}"
        with scan_errors(needs), duckdb_errors():
            self._connection.execute(f"CREATE TABLE {name} AS {query}")
        table = NamedObject(name, self._unused, drop=f"DROP TABLE {name}")
        self._objects[name] = table.drop
        return DuckDbRelation(f"FROM {name}", columns, (table,), table=name)

    def _arrow_relation(self, rows: pa.Table | ArrowScan) -> DuckDbRelation:
        """Return a relation over Arrow data.

        DuckDB pushes comparisons of plain columns down to Arrow, which does not treat NaN as
        greater than all other numbers. DuckDB compares computed values itself. Float columns are
        therefore negated twice, which makes them computed values.
        """
        source = self._register(rows)
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

    def _register(self, rows: Any) -> NamedObject:
        """Register Arrow data in DuckDB under a new name."""
        self._drop_unused()
        source = NamedObject(f"source_{next(self._numbers)}", self._unused, value=rows)
        with duckdb_errors():
            _define(self._connection, source)
        self._objects[source.name] = ""
        return source

    def _file_list(self, patterns: list[str], needs: list[NamedObject]) -> str:
        """Return SQL for a list of files; a long list becomes a variable, which parses faster."""
        if len(patterns) <= _FEW_FILES:
            return f"[{', '.join(map(literal, patterns))}]"
        name = f"list_{next(self._numbers)}"
        variable = NamedObject(name, self._unused, drop=f"RESET VARIABLE {name}", value=patterns)
        needs.append(variable)
        with duckdb_errors():
            _define(self._connection, variable)
        self._objects[name] = variable.drop
        return f"getvariable('{name}')"

    def _columns(self, query: str) -> tuple[str, ...]:
        with duckdb_errors():
            described = self._connection.execute(f"DESCRIBE {query}").fetchall()
        return tuple(str(name) for name, *_ in described)

    def _drop_unused(self) -> None:
        """Drop the objects that no relation refers to any more."""
        while self._unused:
            name, drop = self._unused.popleft()
            with duckdb_errors():
                if drop:
                    self._connection.execute(drop)
                else:
                    self._connection.unregister(name)
            self._objects.pop(name, None)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._database.connection

    @property
    def _database(self) -> EngineDatabase:
        if self._opened is None:
            self._opened = open_database(self._config.engine)
        return self._opened

    def _cursor(self, needs: Sequence[NamedObject]) -> duckdb.DuckDBPyConnection:
        """Open another connection, and define registered Arrow data and variables on it."""
        with duckdb_errors():
            cursor = self._database.cursor()
            for need in needs:
                _define(cursor, need)
        return cursor


@contextmanager
def scan_errors(needs: Sequence[NamedObject]) -> Iterator[None]:
    """If a query failed because an Arrow scan failed, raise the error of the scan.

    DuckDB's own error has only the text of the scan's error, not its type.
    """
    try:
        yield
    except TxnLogEngineError as error:
        for need in needs:
            failure = getattr(need.value, "failure", None)  # of an Arrow scan
            if failure is not None:
                raise failure from error
        raise


def delta_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with Delta's names for the inner fields of lists and maps.

    >>> delta_types(pa.schema([("a", pa.list_(pa.field("l", pa.int64())))])).field("a").type
    ListType(list<element: int64>)
    """
    return pa.schema([field.with_type(_delta_type(field.type)) for field in schema])


def _stream(
    connection: duckdb.DuckDBPyConnection,
    relation: DuckDbRelation,
    close_after: AbstractContextManager[object] | None = None,
) -> pa.RecordBatchReader:
    """Return rows as Arrow batches; `close_after` is closed after the last batch."""
    with scan_errors(relation.needs), duckdb_errors():
        reader = arrow_reader(connection.execute(relation.sql), BATCH_ROWS)
    schema = delta_types(reader.schema)

    def read(_: Relation = relation) -> Iterator[pa.RecordBatch]:
        same = schema.equals(reader.schema)
        with close_after or nullcontext(), scan_errors(relation.needs), duckdb_errors():
            for batch in reader:
                yield batch if same else batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, read())


def _with_duckdb_types(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the same rows with types that DuckDB imports without loss."""
    schema = duckdb_types(reader.schema)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))


def _delta_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(
            kind.value_field.with_name("element").with_type(_delta_type(kind.value_type))
        )
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_delta_type(member.type)) for member in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_name("key").with_type(_delta_type(key.type)),
            item.with_name("value").with_type(_delta_type(item.type)),
        )
    return kind


def _define(connection: duckdb.DuckDBPyConnection, named: NamedObject) -> None:
    """Register Arrow data or set a variable on a connection.

    For a table, this does nothing: all connections to an instance see its tables.
    """
    if not named.drop:
        connection.register(named.name, named.value)
    elif named.value is not None:
        connection.execute(f"SET VARIABLE {named.name} = ?", [named.value])


def struct_variant(node: exp.Expr) -> exp.Expr:
    """Cast NULL and structs to the struct that represents a variant, instead of to VARIANT.

    >>> from sqlglot import parse_one as parse
    >>> parse("CAST(NULL AS STRUCT<v VARIANT>)").transform(struct_variant).sql("duckdb")
    'CAST(NULL AS STRUCT(v STRUCT(metadata BLOB, value BLOB)))'
    """
    if isinstance(node, exp.Cast):  # or TRY_CAST, which must stay one
        if isinstance(node.this, exp.Null):
            node.set("to", node.to.transform(_as_struct))
        elif node.this.type is not None:
            node.set("to", _copied(node.to, node.this.type))
    return node


def _copied(wanted: exp.DataType, given: exp.DataType) -> exp.DataType:
    """Return the type of a cast, in which each variant that is copied from a struct is a struct.

    >>> wanted, given = "STRUCT<v VARIANT, w VARIANT>", "STRUCT<v STRUCT<value BLOB>, w INT>"
    >>> _copied(exp.DataType.build(wanted), exp.DataType.build(given)).sql("duckdb")
    'STRUCT(v STRUCT(metadata BLOB, value BLOB), w VARIANT)'
    """
    if wanted.this == exp.DType.VARIANT:
        is_struct = given.this in (exp.DType.STRUCT, exp.DType.VARIANT)
        return exp.DataType.build(VARIANT, dialect="duckdb") if is_struct else wanted
    if wanted.this != given.this or not wanted.args.get("nested"):
        return wanted
    inner: list[exp.Expr] = []
    if wanted.this == exp.DType.STRUCT:
        members = {member.name.lower(): member.args["kind"] for member in given.expressions}
        for member in wanted.expressions:
            kind = member.args["kind"]
            kind = _copied(kind, members.get(member.name.lower(), kind))
            inner.append(exp.ColumnDef(this=member.this, kind=kind))
    else:
        pairs = zip(wanted.expressions, given.expressions, strict=True)
        inner = [_copied(one, other) for one, other in pairs]
    return exp.DataType(this=wanted.this, expressions=inner, nested=True)


def _as_struct(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.DataType) and node.this == exp.DType.VARIANT:
        return exp.DataType.build(VARIANT, dialect="duckdb")
    return node


def _rank_query(columns: Sequence[str], keys: Mapping[str, exp.Expr], bits: int) -> exp.Select:
    """Return a query that adds the rank of each key to the rows of the table `rows`.

    >>> _rank_query([], {"r": exp.column("a")}, 4).sql(dialect="duckdb")[7:]
    'CAST(FLOOR(PERCENT_RANK() OVER (ORDER BY a NULLS FIRST) * 15) AS BIGINT) AS "r" FROM rows'
    """
    ranks = [exp.alias_(_rank(key, bits), name, quoted=True) for name, key in keys.items()]
    named = [exp.column(exp.to_identifier(name, quoted=True)) for name in columns]
    return exp.select(*named, *ranks).from_("rows")


def _rank(key: exp.Expr, bits: int) -> exp.Expr:
    window = exp.Window(
        this=exp.PercentRank(),
        order=exp.Order(expressions=[exp.Ordered(this=key.copy(), nulls_first=True)]),
    )
    scaled = exp.Mul(this=window, expression=exp.Literal.number(2**bits - 1))
    return exp.cast(exp.Floor(this=scaled), "BIGINT")
