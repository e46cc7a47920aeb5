"""SQL over the tables of a catalog, by name and at any version."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.files.live_files import LiveFiles
from deltasql.exceptions import InvalidQueryError, TxnLogTableNotFoundError
from deltasql.model.predicates.query_conditions import condition_on
from deltasql.model.predicates.query_text import QueryText, limited, number_of_rows, parse_query
from deltasql.snapshot.files import to_arrow
from deltasql.snapshot.snapshot import CatalogSnapshot, Snapshot, open_snapshot
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.predicates.query_text import AskedTable
    from deltasql.store.records import TableRow

_FIRST_FILES = 100
_PLAIN = (exp.Alias, exp.Column, exp.Identifier, exp.Literal, exp.Star)


def query(
    catalog: Catalog,
    sql: str,
    *,
    limit: int | None = None,
    timeout: float | None = None,
    batch_rows: int | None = None,
) -> pa.RecordBatchReader:
    """Answer a query over tables of a catalog, computed while it is read.

    The SQL is DuckDB's, and only what reads: SELECT, WITH, EXPLAIN, DESCRIBE, SUMMARIZE and SHOW
    TABLES. `crm.sales` is a table of a namespace, `sales@3` a version of it, `sales@'2024-05-01'`
    what it was at a moment. All tables without a version are read as they are at one moment. No
    other file can be read, nothing is fetched. `limit` cuts the answer off, `timeout` in seconds
    ends the query, `batch_rows` says how many rows at most come at a time, 2,048 at least.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db"
    >>> deltasql.write_deltalake(f"{uri}?table=sales", pa.table({"id": [1, 2]}))
    >>> deltasql.write_deltalake(f"{uri}?table=sales", pa.table({"id": [3]}), mode="append")
    >>> with deltasql.connect(uri) as catalog:
    ...     catalog.query("SELECT count(*) AS n FROM sales").read_all().to_pylist()
    ...     catalog.query("SELECT count(*) AS n FROM sales@0").read_all().to_pylist()
    [{'n': 3}]
    [{'n': 2}]
    """
    try:
        return _answer(catalog, parse_query(sql), limit, timeout, batch_rows)
    except RecursionError as error:
        raise InvalidQueryError(
            "the query is nested too deeply", help="Write it in several steps, by WITH."
        ) from error


def _answer(
    catalog: Catalog,
    asked: QueryText,
    limit: int | None,
    timeout: float | None,
    batch_rows: int | None,
) -> pa.RecordBatchReader:
    if asked.tree is None:
        return _names(catalog, limit)
    tree = asked.tree
    if limit is not None and asked.kind == "query":
        tree = limited(tree, limit)
    from deltasql.engine.duckdb.sandbox import DuckDbSandbox  # late: DuckDB is an extra

    files = {
        each.place: _live(catalog, tree, each.place, each.snapshot)
        for each in _opened(catalog, asked)
    }
    with ExitStack() as stack:
        engine = stack.enter_context(DuckDbSandbox(catalog.config, [*files.values()]))
        relations = {place: engine.scan(each) for place, each in files.items()}
        answer = engine.answer(asked.kind, tree, relations, timeout=timeout, batch_rows=batch_rows)
        rows = _while_open(stack.pop_all(), answer)
        next(rows)  # begun, it closes the engine also when nobody reads it
    return pa.RecordBatchReader.from_batches(answer.schema, rows)


@dataclass(frozen=True, slots=True)
class _Opened:
    place: str
    snapshot: Snapshot


def _opened(catalog: Catalog, asked: QueryText) -> Iterator[_Opened]:
    """Yield a snapshot of every table; those at their heads are of one moment."""
    moment = CatalogSnapshot(catalog.store, catalog.cache)
    rows = moment.tables()
    for each in asked.tables:
        table = _named(catalog, each, rows)
        snapshot = moment.snapshot(table.namespace, table.name)
        if snapshot is None or not (each.version is None and each.timestamp is None):
            snapshot = open_snapshot(
                catalog.store,
                table,
                catalog.cache,
                version=each.version,
                timestamp=each.timestamp,
            )
        yield _Opened(each.place, snapshot)


def _named(catalog: Catalog, asked: AskedTable, rows: Sequence[TableRow]) -> TableRow:
    """Return the table of exactly this name, or the only one that differs in case alone."""
    wanted = (asked.namespace or DEFAULT_NAMESPACE, asked.name)
    folded = tuple(part.casefold() for part in wanted)
    alike = []
    for row in rows:
        if (row.namespace, row.name) == wanted:
            return row
        if (row.namespace.casefold(), row.name.casefold()) == folded:
            alike.append(row)
    if len(alike) == 1 and not asked.is_quoted:
        return alike[0]
    name = join_table_name(*wanted)
    near = get_close_matches(name, [join_table_name(row.namespace, row.name) for row in rows], n=1)
    raise TxnLogTableNotFoundError(
        f"table {name} does not exist in {catalog.uri}",
        table=name,
        help=f"Did you mean {near[0]}?" if near else "SHOW TABLES lists what is there.",
    )


def _live(catalog: Catalog, tree: exp.Query, place: str, snapshot: Snapshot) -> LiveFiles:
    """Return the files of a table that a query can need."""
    condition = condition_on(tree, place, snapshot.schema)
    enough = None if condition is not None else _rows_wanted(tree, place)
    listed = None if enough is None else _some_files(snapshot, enough)
    if listed is None:
        listed = snapshot.scan(condition).arrow
    settings = catalog.config.storage
    return LiveFiles(snapshot.table.location, snapshot.metadata, listed, settings)


def _rows_wanted(tree: exp.Query, place: str) -> int | None:
    """Return how many rows of a table are enough for a query, whichever they are."""
    if not isinstance(tree, exp.Select):
        return None
    if set(_given(tree)) - {"expressions", "from_", "limit", "offset", "kind"}:
        return None
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if not isinstance(source, exp.Table) or source.name != place:
        return None
    if set(_given(source)) - {"this", "alias"}:
        return None
    # A function may make many rows of one, or none.
    shown = (node for each in tree.expressions for node in each.walk())
    if not all(isinstance(node, _PLAIN) for node in shown):
        return None
    rows = number_of_rows(tree.args.get("limit"))
    skipped = number_of_rows(tree.args["offset"]) if tree.args.get("offset") else 0
    return None if rows is None or skipped is None else rows + skipped


def _given(node: exp.Expr) -> Iterator[str]:
    return (name for name, value in node.args.items() if value)


def _some_files(snapshot: Snapshot, rows: int) -> pa.Table | None:
    """Return the first files that hold so many rows together; None when more are needed."""
    ids = snapshot.store.query(
        "ids_up",
        table_id=snapshot.table.table_id,
        version=snapshot.version,
        next_file_id=snapshot.next_file_id,
        after_id=-1,
        limit=_FIRST_FILES,
    )
    listed = to_arrow(snapshot.scan().files_among([row[1] for row in ids]))
    # Of a file with a deletion vector nobody knows how many rows are left.
    has_vector = pc.not_equal(pc.fill_null(listed["deletion_vector"], ""), "")
    counts = pc.if_else(has_vector, 0, pc.fill_null(listed["num_records"], 0))
    reached = pc.cumulative_sum(counts.combine_chunks())
    if not len(reached) or reached[-1].as_py() < rows:
        return listed if len(ids) < _FIRST_FILES else None
    return listed.slice(0, pc.sum(pc.less(reached, rows)).as_py() + 1)


def _names(catalog: Catalog, limit: int | None) -> pa.RecordBatchReader:
    tables = catalog.tables()[:limit]
    return pa.table(
        {
            "namespace": pa.array([each.namespace for each in tables], pa.string()),
            "name": pa.array([each.name for each in tables], pa.string()),
            "location": pa.array([each.location for each in tables], pa.string()),
        }
    ).to_reader()


def _while_open(engine: ExitStack, answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield an empty batch, then those of an answer."""
    with engine:
        yield pa.RecordBatch.from_pylist([], answer.schema)
        yield from answer
