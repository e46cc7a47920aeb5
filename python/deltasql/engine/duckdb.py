"""The engine for what fits one machine: DuckDB in this process, out of core, Arrow in and out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.arrow import batches, is_stream
from deltasql.engine.base import FILE, ROW, WriteOptions
from deltasql.engine.changes import counted_by_file, few_in_order, rows_by_file
from deltasql.engine.duckdb_connection import told
from deltasql.engine.duckdb_order import in_order, in_order_by_files
from deltasql.engine.duckdb_relation import DuckDbRelation, Hold, own_relation, renamed
from deltasql.engine.duckdb_scan import (
    TableShape,
    as_pattern,
    empty_query,
    files_query,
    identifier,
)
from deltasql.engine.duckdb_shared import Lent, lend
from deltasql.engine.duckdb_types import delta_types
from deltasql.engine.looked_up import LookedUp, has_plain_types, others, with_numbers
from deltasql.engine.parquet import write_batches
from deltasql.engine.ranks import rank_query
from deltasql.engine.revisable import may_be_revised
from deltasql.engine.revise import revise_files
from deltasql.engine.spool import first_rows, spooled, taken
from deltasql.engine.stored_files import StoredFiles
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.query_conditions import named_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import duckdb

    from deltasql.config import Config
    from deltasql.engine.base import Relation, WritePlan
    from deltasql.engine.live_files import LiveFile, LiveFiles
    from deltasql.model.actions import AddFile

BATCH_ROWS = 122_880  # a row group of DuckDB
_PLAIN = WriteOptions()


class DuckDbEngine:
    """Runs relational work in this process; nothing is opened before it is needed."""

    name = "duckdb"
    dialect = "duckdb"
    writes_at_once = 1  # one write already takes all cores

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lent: Lent | None = None
        self._numbers: Iterator[int | str] = count(1)
        # What belongs to one connection and has to be given to each.
        self._sources: dict[str, object] = {}
        self._lists: dict[str, list[str]] = {}
        self._kinds: dict[str, str] = {}
        """Whether a name is that of a VIEW or of a TABLE."""
        self._unneeded: deque[str] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lent is not None:
            self._lent.give_back()
            self._lent = None
        for known in (self._sources, self._lists, self._kinds, self._unneeded):
            known.clear()

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the table's columns in their order."""
        local = [file for file in files.files if file.address.startswith("/")]
        also = (FILE, ROW) if positions else ()
        columns = (*files.schema.names, *also)
        if not files.files:
            return self._view(empty_query(files.schema, also), columns)
        names: list[str] = []
        queries = list(self._local(files, local, names, positions=positions)) if local else []
        if len(local) < len(files.files):
            stored = StoredFiles(files, self._config.storage, positions=positions)
            found = self._scanned(stored)
            if not local:
                return replace(found, stored=stored, reads_files=True)
            queries.append(f"FROM {found.name}")
            view = self._view("\nUNION ALL ".join(queries), columns, names, (found.hold,))
        else:
            view = self._view("\nUNION ALL ".join(queries), columns, names)
        return replace(view, reads_files=True)

    def rows(self, data: object) -> Relation:
        """Return what a user handed in; a stream is kept, on disk when it is large."""
        if isinstance(data, DuckDbRelation):
            return data
        if not is_stream(data):
            return self._scanned(batches(data).read_all())
        given = batches(data)
        held, is_all = first_rows(given)
        if is_all and has_plain_types(given.schema):
            return self._scanned(pa.Table.from_batches(held, given.schema))
        failed: list[BaseException] = []

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from taken(held)
                yield from given
            except BaseException as error:
                failed.append(error)
                raise

        stream = pa.RecordBatchReader.from_batches(given.schema, read())
        try:
            # The bare stream: a reader would be read ahead by threads of Arrow, which wait for
            # Python while others wait for them.
            return self._table("FROM new_rows", new_rows=stream.__arrow_c_stream__())
        except TxnLogEngineError:
            if failed:
                raise failed[0] from None
            raise

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the answer to a query, computed when it is needed."""
        used = {name: self._narrowed(own_relation(each), sql) for name, each in relations.items()}
        names = {name: relation.name for name, relation in used.items()}
        placed = sql.transform(partial(renamed, names=names))
        needs = tuple(relation.hold for relation in used.values())
        selected = sql.named_selects
        columns = None if "*" in selected or "" in selected else tuple(selected)
        view = self._view(placed.sql(dialect=self.dialect, identify=True), columns, needs=needs)
        return replace(view, reads_files=any(each.reads_files for each in used.values()))

    def keep(self, relation: Relation) -> Relation:
        """Compute rows once; large ones go to disk."""
        return self._table(f"FROM {own_relation(relation).name}")

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Give every row a number in a new column; what is a table already has one."""
        own = own_relation(relation)
        if own.rows is not None and has_plain_types(own.rows.schema):
            return self._scanned(with_numbers(own.rows, name))
        if self._kinds.get(own.name) != "TABLE":
            return self.numbered(self.keep(own), name)
        query = f"FROM {own.name} SELECT *, rowid AS {identifier(name)}"
        return self._view(query, (*own.columns, name), needs=(own.hold,))

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add the rank of each key by a window."""
        return self.query(rank_query(relation.columns, keys, bits), rows=relation)

    def collect(self, relation: Relation) -> pa.Table:
        """Return rows as Arrow: for small results."""
        with told():
            found = self._connection.execute(f"FROM {own_relation(relation).name}").to_arrow_table()
        return found.cast(delta_types(found.schema))

    def stream(self, relation: Relation, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return rows as Arrow, batch by batch, in bounded memory."""
        # On a connection of its own, since one connection has one open answer.
        cursor = self._cursor()
        with told():
            reader = cursor.execute(f"FROM {own_relation(relation).name}").to_arrow_reader(rows)
        schema = delta_types(reader.schema)

        def read(_: Relation = relation) -> Iterator[pa.RecordBatch]:
            same = schema.equals(reader.schema)
            with cursor, told():
                for batch in reader:
                    yield batch if same else batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, read())

    def keep_changes(self, changes: Relation) -> tuple[Relation, dict[int, int]]:
        """Compute changes once and count them: a few here, without asking DuckDB again."""
        few = few_in_order(self.stream(changes, BATCH_ROWS))
        if few is None:
            kept = self.keep(changes)
            return kept, rows_by_file(self, kept)
        return replace(self._source(few), held=few), counted_by_file(few)

    def looked_up(
        self, places: Relation, source: Relation, number: str, columns: Mapping[str, str]
    ) -> Relation | None:
        """Return changes by number, if the source is in memory and they are few."""
        rows = own_relation(source).rows
        if rows is None:
            return None
        self._database.give_back_memory()  # what it took to find the rows
        few = few_in_order(self.stream(places, BATCH_ROWS))
        if few is None:
            return None
        return replace(self._source(few), held=LookedUp(few, number, rows, columns))

    def unmatched(self, source: Relation, matched: Relation, number: str) -> Relation | None:
        """Return the rows of a source without some, if it is in memory."""
        rows = own_relation(source).rows
        if rows is None:
            return None
        query = exp.select(exp.column(number, quoted=True)).from_("m")
        return self._scanned(others(rows, self.stream(self.query(query, m=matched))))

    def revises(self, files: LiveFiles, plan: WritePlan) -> bool:
        """Tell whether files are large enough, and written as usual."""
        return plan.options == _PLAIN and any(map(may_be_revised, files.files))

    def revise(
        self, files: LiveFiles, places: Sequence[int], changes: Relation, plan: WritePlan
    ) -> list[list[AddFile] | None]:
        """Write files again in which rows are dropped or have new values."""
        own = own_relation(changes)
        if own.held is not None:
            self._database.give_back_memory()  # what it took to find the rows
            return revise_files(files, places, own.held.to_reader(), plan)
        is_cheap = not own.reads_files and self._kinds.get(own.name) == "VIEW"
        if is_cheap:
            self._database.give_back_memory()  # what it took to find the rows
        # All of them at once: DuckDB would hold on to what it sorted until the last is taken.
        rows, are_few = spooled(in_order_by_files(self, own) if is_cheap else in_order(self, own))
        if is_cheap or not are_few:
            self._database.set_aside()
        return revise_files(files, places, rows, plan)

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics; one without a commit is invisible."""
        return write_batches(self.stream(relation), plan)

    # How relations come about

    def _local(
        self, files: LiveFiles, local: list[LiveFile], names: list[str], *, positions: bool
    ) -> Iterator[str]:
        """Yield the queries over files that DuckDB opens itself; `names` gets what they need."""
        number = next(self._numbers)
        shape = TableShape(
            files.schema,
            files.partition_columns,
            files.column_mapping_mode,
            files_table=f"files_{number}",
            deleted_table=f"deleted_{number}",
        )
        whole = [file for file in local if not file.vector]
        # One list of all files: its places are those that are asked for.
        is_whole = len(whole) == len(files.files)
        if files.partition_columns or (positions and not is_whole):
            wanted = {id(file): place for place, file in enumerate(files.files)}
            columns: dict[str, Any] = {
                "filename": pa.array([file.address for file in local], pa.string()),
                FILE: pa.array([wanted[id(file)] for file in local], pa.int64()),
            }
            for place, (_, values) in enumerate(files.partition_values(local)):
                columns[f"p{place}"] = values
            names.append(shape.files_table)
            self._fill(shape.files_table, "FROM listed", listed=pa.table(columns))
        deleted = [file for file in local if file.vector]
        if deleted:
            names.append(shape.deleted_table)
            self._fill(shape.deleted_table, "FROM dead", dead=files.deleted(deleted))
        for group in (whole, deleted):
            if group:
                listed = self._list([as_pattern(file.address) for file in group])
                names.append(listed)
                records = [file.records for file in group if file.records is not None]
                number_of = "CAST(r.file_index AS BIGINT)" if is_whole else f"p.{identifier(FILE)}"
                also = (
                    f"{number_of} AS {identifier(FILE)}",
                    f"r.file_row_number AS {identifier(ROW)}",
                )
                yield files_query(
                    shape,
                    f"getvariable('{listed}')",
                    has_deletions=group is deleted,
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

    def _view(
        self,
        query: str,
        columns: tuple[str, ...] | None,
        names: Sequence[str] = (),
        needs: tuple[Hold, ...] = (),
    ) -> DuckDbRelation:
        """Give a query a name; `columns` are None when DuckDB has to tell."""
        self._tidy()
        name = f"relation_{next(self._numbers)}"
        self._kinds[name] = "VIEW"
        hold = Hold(self._unneeded, [name, *names], needs)
        with told():
            self._connection.execute(f"CREATE VIEW {name} AS {query}")
            known = columns or tuple(self._connection.view(name).columns)
        return DuckDbRelation(name, known, hold)

    def _table(self, query: str, **sources: object) -> DuckDbRelation:
        name = f"relation_{next(self._numbers)}"
        hold = Hold(self._unneeded, [name], ())
        self._fill(name, query, **sources)
        with told():
            return DuckDbRelation(name, tuple(self._connection.table(name).columns), hold)

    def _fill(self, name: str, query: str, **sources: object) -> None:
        self._tidy()
        self._kinds[name] = "TABLE"
        connection = self._connection
        with told():
            for source, rows in sources.items():
                connection.register(source, rows)
            try:
                connection.execute(f"CREATE TABLE {name} AS {query}")
            finally:
                for source in sources:
                    connection.unregister(source)

    def _scanned(self, rows: pa.Table | StoredFiles) -> DuckDbRelation:
        """Give rows of Arrow a name for queries with conditions.

        DuckDB lets Arrow compare columns where it can, and to Arrow NaN is above no number. What
        has been computed with it compares itself, so floats are turned around twice.
        """
        found = self._source(rows)
        held = rows if isinstance(rows, pa.Table) else None
        floats = {field.name for field in rows.schema if pa.types.is_floating(field.type)}
        if not floats:
            return replace(found, rows=held)
        columns = [
            f"-(-{identifier(name)}) AS {identifier(name)}" if name in floats else identifier(name)
            for name in found.columns
        ]
        query = f"FROM {found.name} SELECT {', '.join(columns)}"
        return replace(self._view(query, found.columns, needs=(found.hold,)), rows=held)

    def _source(self, rows: Any) -> DuckDbRelation:
        self._tidy()
        name = f"source_{next(self._numbers)}"
        with told():
            self._connection.register(name, rows)
        self._sources[name] = rows
        hold = Hold(self._unneeded, [name], ())
        return DuckDbRelation(name, tuple(rows.schema.names), hold)

    def _list(self, patterns: list[str]) -> str:
        name = f"list_{next(self._numbers)}"
        with told():
            self._connection.execute(f"SET VARIABLE {name} = ?", [patterns])
        self._lists[name] = patterns
        return name

    def _tidy(self) -> None:
        """Give back what relations had that nobody has any more."""
        while self._unneeded:
            name = self._unneeded.popleft()
            with told():
                if name in self._sources:
                    self._connection.unregister(name)
                    del self._sources[name]
                elif name in self._lists:
                    self._connection.execute(f"RESET VARIABLE {name}")
                    del self._lists[name]
                elif name in self._kinds:
                    self._connection.execute(f"DROP {self._kinds.pop(name)} IF EXISTS {name}")

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._database.connection

    @property
    def _database(self) -> Lent:
        if self._lent is None:
            self._lent = lend(self._config.engine)
        return self._lent

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with told():
            cursor = self._database.cursor()
            for name, source in self._sources.items():
                cursor.register(name, source)
            for name, patterns in self._lists.items():
                cursor.execute(f"SET VARIABLE {name} = ?", [patterns])
        return cursor
