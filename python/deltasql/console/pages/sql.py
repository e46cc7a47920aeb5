"""The SQL page: results of a query in pages, as a plot or as CSV."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from deltasql.console import rows
from deltasql.console.plots import KINDS, Plot, plot_of
from deltasql.console.rows import read_limited
from deltasql.console.values import Grid, grid_of
from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.console.request import PageRequest

PER_PAGE = 100
MAX_PAGES = 100
TIMEOUT_S = 60.0
_SHOWN_TABLES = 200
LIMITS = {
    "rows": PER_PAGE * MAX_PAGES,
    "bytes": rows.MAX_BYTES,
    "seconds": TIMEOUT_S,
    "csv_rows": rows.MAX_CSV_ROWS,
    "csv_bytes": rows.MAX_CSV_BYTES,
}


@dataclass(frozen=True, slots=True)
class Result:
    """One page of a query's result."""

    grid: Grid
    plot: Plot | None
    seconds: float
    page: int
    has_more: bool
    is_last: bool
    """Whether this is the last page that can be shown, although there are more rows."""
    is_truncated: bool
    """Whether rows were omitted because the result exceeds the size limit."""


def show(request: PageRequest) -> Response:
    """Show the editor; a query in the URL is filled in but not run."""
    return _page(request, request.text("sql"))


def run(request: PageRequest) -> Response:
    """Run a query and show its result, or send it as CSV."""
    text = request.form.get("sql", "")
    try:
        if request.form.get("format") == "csv":
            return _csv(request, text)
        return _page(request, text, result=_result(request, text))
    except TxnLogError as error:
        return _page(request, text, problem=error, status=400)


def query_name(namespace: str, name: str) -> str:
    """Return a table's name for a query, quoted because it may be a keyword.

    >>> query_name("default", "values"), query_name("crm", "a b")
    ('"values"', '"crm"."a b"')
    """
    parts = [name] if namespace == "default" else [namespace, name]
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _result(request: PageRequest, text: str) -> Result:
    given = request.form.get("page", "1")
    page = min(MAX_PAGES, max(1, int(given) if given.isdecimal() and len(given) < 9 else 1))
    started = time.perf_counter()
    limited = read_limited(_result_of(request, text, page * PER_PAGE + 1))
    found = limited.rows
    seconds = time.perf_counter() - started
    shown = found.slice((page - 1) * PER_PAGE, PER_PAGE)
    return Result(
        grid=grid_of(shown),
        plot=plot_of(found.slice(0, page * PER_PAGE), request.form.get("plot", "auto")),
        seconds=seconds,
        page=page,
        has_more=found.num_rows > page * PER_PAGE and page < MAX_PAGES,
        is_last=found.num_rows > page * PER_PAGE and page == MAX_PAGES,
        is_truncated=limited.is_truncated,
    )


def _result_of(request: PageRequest, text: str, limit: int) -> pa.RecordBatchReader:
    return request.catalog.query(text, limit=limit, timeout=TIMEOUT_S, batch_rows=rows.BATCH_ROWS)


def _csv(request: PageRequest, text: str) -> Response:
    # Request one row more than the limit, to detect that the result is longer.
    limit = rows.MAX_CSV_ROWS + 1
    file = rows.as_csv(_result_of(request, text, limit))
    name = f"query-first-{file.rows}-rows.csv" if file.is_truncated else "query.csv"
    return StreamingResponse(
        file.parts(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _page(request: PageRequest, text: str, status: int = 200, **values: Any) -> Response:
    tables = request.catalog.tables()
    given: dict[str, Any] = {"result": None, "problem": None, **values}
    return request.page(
        "sql.html",
        status,
        sql=text,
        tables=tables[:_SHOWN_TABLES],
        hidden=max(0, len(tables) - _SHOWN_TABLES),
        plot=request.form.get("plot", "auto"),
        kinds=KINDS,
        limits=LIMITS,
        **given,
    )
