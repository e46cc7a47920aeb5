"""The rows of a table: filtered, sorted and paged by a query on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from deltasql.console.pages.sql import query_name
from deltasql.console.rows import BATCH_ROWS, MAX_CHARACTERS, LimitedRows, read_limited
from deltasql.console.values import grid_of
from deltasql.engine.query_limits import QueryLimits
from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.inspect.overview import TableSummary
    from deltasql.console.request import PageRequest

ROWS_PER_PAGE = 50
MAX_PAGES = 10_000
_TIMEOUT_S = 20.0


def show(request: PageRequest) -> Response:
    """Show the rows of a version; the URL contains the filter, the order and the page number."""
    inspect = request.catalog.inspect
    table = inspect.table(request.name)
    version = request.number("version", table.version)
    columns = inspect.schema(request.name, version=version)
    where, sort = request.text("where"), request.http.query_params.get("sort", "")
    if sort and sort not in [each.name for each in columns]:
        raise HTTPException(400, f"Version {version} of the table has no column {sort}.")
    is_descending = request.choice("descending", "", "1") == "1"
    page = request.number("page", 1, low=1, high=MAX_PAGES)
    sql = _query(table, version, where, sort, is_descending)
    found, problem = None, None
    try:
        found = _read(request, sql, page) if columns else None
    except TxnLogError as error:
        problem = error
    return request.page(
        "rows.html",
        400 if problem else 200,
        tab="rows",
        table=table,
        version=version,
        where=where,
        sort=sort,
        descending=is_descending,
        number=page,
        first=(page - 1) * ROWS_PER_PAGE,
        columns=columns,
        sql=f"{sql}\nLIMIT 100",
        problem=problem,
        found=found and grid_of(found.rows.slice(0, ROWS_PER_PAGE)),
        has_more=found is not None and found.rows.num_rows > ROWS_PER_PAGE,
        is_truncated=found is not None and found.is_truncated,
    )


def _query(table: TableSummary, version: int, where: str, sort: str, is_descending: bool) -> str:
    # The filter is part of a query that `catalog.query` checks, like the queries of the SQL page.
    parts = [f"SELECT * FROM {query_name(table.namespace, table.short_name)}@{version}"]  # noqa: S608
    if where:
        parts.append(f"WHERE (\n{where}\n)")
    if sort:
        column = '"' + sort.replace('"', '""') + '"'
        parts.append(f"ORDER BY {column}{' DESC' if is_descending else ''} NULLS LAST")
    return "\n".join(parts)


def _read(request: PageRequest, sql: str, page: int) -> LimitedRows:
    # Request one row more than a page has, to detect whether there is a next page.
    span = f"\nLIMIT {ROWS_PER_PAGE + 1} OFFSET {(page - 1) * ROWS_PER_PAGE}"
    limits = QueryLimits(shorten=MAX_CHARACTERS, interrupt=request.interrupt)
    result = request.catalog.query(
        sql + span, timeout=_TIMEOUT_S, batch_rows=BATCH_ROWS, limits=limits
    )
    return read_limited(result)
