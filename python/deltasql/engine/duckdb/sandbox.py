"""Run a user's SQL query in a private DuckDB instance, restricted to the queried tables.

DuckDB itself denies access to other files, to the network and to extensions. Statements other than
queries are rejected earlier, by `deltasql.model.predicates.query_text`.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.duckdb.connection import (
    EngineDatabase,
    duckdb_errors,
    open_sandbox,
    require_duckdb,
)
from deltasql.engine.duckdb.engine import (
    BATCH_ROWS,
    DuckDbEngine,
    delta_types,
    own_relation,
    scan_errors,
    struct_variant,
)
from deltasql.engine.duckdb.long_values import has_row, length, shortened
from deltasql.engine.duckdb.scan import as_pattern
from deltasql.engine.query_limits import NO_LIMITS, Interrupt, QueryLimits
from deltasql.exceptions import InvalidQueryError, TxnLogEngineError
from deltasql.model.counts import size_text
from deltasql.model.duckdb_results import arrow_reader
from deltasql.model.predicates.query_text import DIALECT
from deltasql.storage.location import root_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from deltasql.config import Config
    from deltasql.engine.base import Relation
    from deltasql.engine.files.live_files import LiveFiles

_FORMS = {
    "query": "{sql}",
    "explain": "EXPLAIN {sql}",
    "explain analyze": "EXPLAIN ANALYZE {sql}",
    "describe": 'SELECT column_name, column_type, "null" AS nullable FROM (DESCRIBE {sql})',
    "summarize": "SELECT * FROM (SUMMARIZE {sql})",
}
_LONGEST = 2**31 - 1  # no value in DuckDB has more characters or elements
_VALUES_HELP = "Select fewer columns, or parts of long values, for example with left(column, 1000)."
_NAMES_HELP = "Correct the query; `deltasql schema TABLE` lists the columns of a table."


class DuckDbSandbox(DuckDbEngine):
    """An engine for one query over a fixed set of files."""

    def __init__(self, config: Config, files: Sequence[LiveFiles]) -> None:
        super().__init__(config)
        # Use names that a query cannot guess: a CTE with the same name would hide a relation.
        secret = uuid.uuid4().hex
        self._numbers = (f"{secret}_{number}" for number in count(1))
        self._folders = sorted({folder for each in files for folder in _folders(each)})

    def run_query(
        self,
        kind: str,
        sql: exp.Query,
        relations: Mapping[str, Relation],
        *,
        timeout: float | None = None,
        batch_rows: int | None = None,
        limits: QueryLimits = NO_LIMITS,
    ) -> pa.RecordBatchReader:
        """Return the result, which is computed while it is read.

        The query is interrupted when it has run for more than `timeout` seconds.
        """
        deadline = _Deadline(timeout, limits.interrupt or Interrupt())
        used = {
            name: self._with_used_columns(own_relation(each), sql)
            for name, each in relations.items()
        }
        names = {name: f"relation_{next(self._numbers)}" for name in used}
        renamed = sql.transform(lambda node: struct_variant(_renamed(node, names)))
        text = _FORMS[kind].format(sql=renamed.sql(dialect=self.dialect, identify=True))
        needs = [need for each in used.values() for need in each.needs]
        cursor = self._cursor(needs)
        with duckdb_errors():
            for name, relation in used.items():
                cursor.execute(f"CREATE TEMP VIEW {names[name]} AS {relation.sql}")
        with deadline.interrupts(cursor), scan_errors(needs), _short_errors():
            if kind == "query":
                text = _with_limited_values(cursor, text, limits)
            reader = arrow_reader(cursor.execute(text), batch_rows or BATCH_ROWS)
        schema = delta_types(reader.schema)

        def read(_: object = used) -> Iterator[pa.RecordBatch]:
            with cursor:
                while True:
                    with deadline.interrupts(cursor), scan_errors(needs), _short_errors():
                        batch = next(reader, None)
                    if batch is None:
                        return
                    # Even a cast that changes nothing imports pyarrow.compute, so skip it.
                    yield batch if batch.schema.equals(schema) else batch.cast(schema)

        return pa.RecordBatchReader.from_batches(schema, read())

    @property
    def _database(self) -> EngineDatabase:
        if self._opened is None:
            self._opened = open_sandbox(self._config.engine, self._folders)
        return self._opened


class _Deadline:
    """A time limit for computing a result. The time between two reads does not count."""

    def __init__(self, seconds: float | None, interrupt: Interrupt) -> None:
        self._seconds = seconds
        self._left = seconds
        self._interrupt = interrupt

    @contextmanager
    def interrupts(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Interrupt the cursor's query if the time limit passes within the block."""
        with self._interrupt.stopping_with(cursor.interrupt), self._in_time(cursor):
            yield

    @contextmanager
    def _in_time(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        if self._left is None:
            yield
            return
        if self._left <= 0:
            raise self._error()
        end = time.monotonic() + self._left
        timer = threading.Timer(self._left, cursor.interrupt)
        timer.start()
        try:
            yield
        except TxnLogEngineError as error:
            if time.monotonic() >= end:
                raise self._error() from error
            raise
        finally:
            timer.cancel()
            self._left = end - time.monotonic()

    def _error(self) -> TxnLogEngineError:
        return TxnLogEngineError(
            f"the query was cancelled: it took longer than {self._seconds:g} s",
            engine="duckdb",
            help="Query fewer rows, or raise the timeout.",
        )


def _with_limited_values(cursor: duckdb.DuckDBPyConnection, sql: str, limits: QueryLimits) -> str:
    """Return a query with the same rows, which shortens long values or fails if there are any.

    The strings and bytes in a batch of DuckDB must not exceed 2 GiB.
    """
    if limits.shorten is None and limits.longest_value is None:
        return sql
    titles = [title for title, *_ in cursor.execute(f"DESCRIBE {sql}").fetchall()]
    # The names of columns may repeat, so the inner query gets names of its own.
    names = [f"column_{number}" for number in range(len(titles))]
    source = f"({sql}) AS result({', '.join(names)})"
    kinds = [kind for _, kind, *_ in cursor.execute(f"FROM {source} LIMIT 0").description]
    shown = []
    for name, kind, title in zip(names, kinds, titles, strict=True):
        size, most = length(kind, name), limits.longest_value
        value = name
        if limits.shorten is not None or has_row(kind):  # Arrow cannot represent rows
            value = shortened(kind, name, limits.shorten or _LONGEST) or name
        if size is not None and most is not None:
            value = (
                f"CASE WHEN {size} > {most} THEN error({_too_long(title, most)}) ELSE {value} END"
            )
        shown.append(f"{value} AS {exp.to_identifier(title, quoted=True).sql(DIALECT)}")
    return f"SELECT {', '.join(shown)} FROM {source}"  # noqa: S608


def _too_long(column: str, most: int) -> str:
    message = f"a value of the column {column} has more than {size_text(most)}"
    return exp.Literal.string(message).sql(DIALECT)


@contextmanager
def _short_errors() -> Iterator[None]:
    """Raise DuckDB's errors, but remove the excerpt of the generated query from their text."""
    require_duckdb()
    import duckdb

    try:
        with duckdb_errors():
            yield
    except TxnLogEngineError as error:
        short = error.message.partition("\n\nLINE ")[0]
        if isinstance(error.__cause__, duckdb.BinderException | duckdb.CatalogException):
            raise InvalidQueryError(short, help=_NAMES_HELP) from error
        raise TxnLogEngineError(short, engine="duckdb", help=error.help) from error
    except OSError as error:  # Arrow's form of an error that DuckDB raises while rows are read
        short = str(error).partition("\n")[0].partition("Error: ")[2] or str(error)
        raise TxnLogEngineError(short, engine="duckdb", help=_VALUES_HELP) from error


def _folders(files: LiveFiles) -> Iterator[str]:
    """Yield the folders of the local files of a table, as paths and as glob patterns."""
    root = f"{root_address(files.location).rstrip('/')}/"
    found = set()
    for file in files.files:
        if file.address.startswith("/"):
            inside = file.address.startswith(root)
            found.add(root if inside else f"{PurePosixPath(file.address).parent}/")
    for folder in found:
        # DuckDB checks access for the glob pattern itself, before it expands the pattern.
        yield from {folder, as_pattern(folder)}


def _renamed(node: exp.Expression, names: dict[str, str]) -> exp.Expression:
    """Rename a table node, and keep the old name as its alias.

    Other nodes, and tables that are not in `names`, are returned unchanged.
    """
    if not isinstance(node, exp.Table) or node.args.get("db") or node.name not in names:
        return node
    renamed = exp.to_table(names[node.name])
    for key, value in node.args.items():
        if key not in ("this", "alias") and value is not None:
            renamed.set(key, value)
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
    renamed.set("alias", alias)
    return renamed
