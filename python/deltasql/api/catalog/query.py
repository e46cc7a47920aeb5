"""`catalog.query`: read-only SQL over the tables of a catalog, by name and at any version."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.api.catalog.base import CatalogTable, table_not_found
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.query_limits import NO_LIMITS, QueryLimits
from deltasql.exceptions import InvalidQueryError
from deltasql.model.predicates.query_conditions import condition_on
from deltasql.model.predicates.query_text import QueryText, limited, number_of_rows, parse_query
from deltasql.operations.sql.collations import reject_collated_query
from deltasql.snapshot.files import to_arrow
from deltasql.snapshot.snapshot import CatalogSnapshot, Snapshot
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.model.predicates.query_text import QueriedTable
    from deltasql.store.records import TableRow

_FIRST_FILES = 100
_PLAIN = (exp.Alias, exp.Column, exp.Identifier, exp.Literal, exp.Star)


def query(
    catalog: BaseCatalog,
    sql: str,
    *,
    limit: int | None = None,
    timeout: float | None = None,
    batch_rows: int | None = None,
    limits: QueryLimits = NO_LIMITS,
) -> pa.RecordBatchReader:
    """Run a read-only query over tables of a catalog; rows are computed while they are read.

    The SQL is DuckDB's, limited to SELECT, WITH, EXPLAIN, DESCRIBE, SUMMARIZE and SHOW TABLES.
    `crm.sales` is a table of a namespace, `sales@3` a version of a table, `sales@'2024-05-01'` a
    table at a timestamp. All tables without a version are read at the same point in time. The
    query cannot read other files or use the network. `limit` is the maximum number of
    rows, `timeout` is the maximum number of seconds, `batch_rows` is the maximum number of rows
    in a batch, at least 2,048. `limits` shortens or refuses long values and can cancel the query.

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
        return run_parsed(catalog, parse_query(sql), limit, timeout, batch_rows, limits)
    except RecursionError as error:
        raise InvalidQueryError(
            "the query is nested too deeply", help="Split it into parts with WITH."
        ) from error


def run_parsed(
    catalog: BaseCatalog,
    parsed: QueryText,
    limit: int | None = None,
    timeout: float | None = None,
    batch_rows: int | None = None,
    limits: QueryLimits = NO_LIMITS,
) -> pa.RecordBatchReader:
    """Run a parsed query over the current versions of its tables."""
    if parsed.tree is None:
        return _names(catalog, limit)
    tree = parsed.tree
    if limit is not None and parsed.kind == "query":
        tree = limited(tree, limit)
    files = {
        place: live_files(catalog, tree, place, snapshot)
        for place, snapshot in _snapshots(catalog, parsed)
    }
    reject_collated_query(tree, (each.schema for each in files.values()))
    with sandbox(catalog, files) as (stack, answer):
        found = answer(parsed.kind, tree, timeout=timeout, batch_rows=batch_rows, limits=limits)
        return closing_reader(stack.pop_all(), found)


@contextmanager
def sandbox(
    catalog: BaseCatalog, files: Mapping[str, LiveFiles]
) -> Iterator[tuple[ExitStack, Callable[..., pa.RecordBatchReader]]]:
    """Open a DuckDB sandbox; `files` has the files of each table, by its name in the queries.

    Yields the stack that closes the engine, and a function that runs a query.
    """
    from deltasql.engine.duckdb.sandbox import DuckDbSandbox  # lazy import: DuckDB is optional

    with ExitStack() as stack:
        engine = stack.enter_context(DuckDbSandbox(catalog.config, [*files.values()]))
        relations = {place: engine.scan(each) for place, each in files.items()}

        def answer(kind: str, tree: exp.Query, **options: Any) -> pa.RecordBatchReader:
            return engine.run_query(kind, tree, relations, **options)

        yield stack, answer


def _snapshots(catalog: BaseCatalog, parsed: QueryText) -> Iterator[tuple[str, Snapshot]]:
    """Yield a snapshot of every table; all latest versions are from the same point in time."""
    heads = CatalogSnapshot(catalog.store, catalog.cache)
    rows = heads.tables()
    for each in parsed.tables:
        table = _named(catalog, each, rows)
        snapshot = heads.snapshot(table.namespace, table.name)
        if snapshot is None or not (each.version is None and each.timestamp is None):
            snapshot = CatalogTable(catalog, table).snapshot(each.version, timestamp=each.timestamp)
        yield each.place, snapshot


def _named(catalog: BaseCatalog, table: QueriedTable, rows: Sequence[TableRow]) -> TableRow:
    """Return the table of this name, or the only table whose name differs in case alone."""
    wanted = (table.namespace or DEFAULT_NAMESPACE, table.name)
    folded = tuple(part.casefold() for part in wanted)
    alike = []
    for row in rows:
        if (row.namespace, row.name) == wanted:
            return row
        if (row.namespace.casefold(), row.name.casefold()) == folded:
            alike.append(row)
    if len(alike) == 1 and not table.is_quoted:
        return alike[0]
    name = join_table_name(*wanted)
    known = [join_table_name(row.namespace, row.name) for row in rows]
    raise table_not_found(catalog.uri, name, known, help="SHOW TABLES lists the tables.")


def live_files(catalog: BaseCatalog, tree: exp.Query, place: str, snapshot: Snapshot) -> LiveFiles:
    """Return the files of a table that a query may need."""
    condition = condition_on(tree, place, snapshot.schema)
    enough = None if condition is not None else _rows_needed(tree, place)
    listed = None if enough is None else _some_files(snapshot, enough)
    if listed is None:
        listed = snapshot.scan(condition).arrow
    settings = catalog.config.storage
    return LiveFiles(snapshot.table.location, snapshot.metadata, listed, settings)


def _rows_needed(tree: exp.Query, place: str) -> int | None:
    """Return how many rows a query needs, if any rows of the table will do; otherwise None."""
    if not isinstance(tree, exp.Select):
        return None
    if set(_set_arguments(tree)) - {"expressions", "from_", "limit", "offset", "kind"}:
        return None
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if not isinstance(source, exp.Table) or source.name != place:
        return None
    if set(_set_arguments(source)) - {"this", "alias"}:
        return None
    # A function may return several rows, or none, for one row of the table.
    shown = (node for each in tree.expressions for node in each.walk())
    if not all(isinstance(node, _PLAIN) for node in shown):
        return None
    rows = number_of_rows(tree.args.get("limit"))
    skipped = number_of_rows(tree.args["offset"]) if tree.args.get("offset") else 0
    return None if rows is None or skipped is None else rows + skipped


def _set_arguments(node: exp.Expr) -> Iterator[str]:
    return (name for name, value in node.args.items() if value)


def _some_files(snapshot: Snapshot, rows: int) -> pa.Table | None:
    """Return the first files with at least `rows` rows in total; None if too many are needed."""
    ids = snapshot.store.query(
        "ids_up",
        table_id=snapshot.table.table_id,
        version=snapshot.version,
        next_file_id=snapshot.next_file_id,
        after_id=-1,
        limit=_FIRST_FILES,
    )
    listed = to_arrow(snapshot.scan().files_among([row[1] for row in ids]))
    import pyarrow.compute as pc  # lazy import: start-up time

    # `num_records` includes deleted rows, so a file with a deletion vector is counted as 0 rows.
    has_vector = pc.not_equal(pc.fill_null(listed["deletion_vector"], ""), "")
    counts = pc.if_else(has_vector, 0, pc.fill_null(listed["num_records"], 0))
    reached = pc.cumulative_sum(counts.combine_chunks())
    if not len(reached) or reached[-1].as_py() < rows:
        return listed if len(ids) < _FIRST_FILES else None
    return listed.slice(0, pc.sum(pc.less(reached, rows)).as_py() + 1)


def _names(catalog: BaseCatalog, limit: int | None) -> pa.RecordBatchReader:
    tables = catalog.tables()[:limit]
    return pa.table(
        {
            "namespace": pa.array([each.namespace for each in tables], pa.string()),
            "name": pa.array([each.name for each in tables], pa.string()),
            "location": pa.array([each.location for each in tables], pa.string()),
        }
    ).to_reader()


def closing_reader(engine: ExitStack, result: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a reader that closes the engine after the last row, or when the reader is deleted."""
    batches = _batches(engine, result)
    next(batches)  # a generator that has not started would not run its `with` at deletion
    return pa.RecordBatchReader.from_batches(result.schema, batches)


def _batches(engine: ExitStack, result: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield an empty batch, then the batches of the result."""
    with engine:
        empty = [pa.nulls(0, field.type) for field in result.schema]  # pa.array would import pandas
        yield pa.RecordBatch.from_arrays(empty, schema=result.schema)
        yield from result
