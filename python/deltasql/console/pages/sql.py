"""The SQL page: results of a query in pages, as a plot or as a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pyarrow as pa
from starlette.responses import JSONResponse, Response, StreamingResponse

from deltasql.console import rows
from deltasql.console.plots import KINDS, Plot, plot_of
from deltasql.console.rows import read_limited
from deltasql.console.values import Grid, grid_of
from deltasql.engine.query_limits import QueryLimits
from deltasql.exceptions import TxnLogEngineError, TxnLogError
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from deltasql.console.request import PageRequest

PER_PAGE = 100
SIZES = {"100": "100", "500": "500", "1000": "1,000"}
MAX_ROWS = 10_000
FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_MAX_ADDRESS = 8000
TIMEOUT_S = 60.0
_SHOWN_TABLES = 200
_SCHEMA_S = 2.0
LIMITS = {
    "rows": MAX_ROWS,
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
    address: str | None
    """The address of this result, to share it."""


def show(request: PageRequest) -> Response:
    """Show the editor with the query in the URL; run the query if a person opened the URL.

    A link on a page of another site only fills in the query.
    """
    site = request.http.headers.get("sec-fetch-site")
    if request.text("run") == "1" and request.text("sql") and site in ("none", "same-origin"):
        return run(request)
    return _page(request, request.text("sql"))


def schema(request: PageRequest) -> Response:
    """Return the tables and their columns as JSON, for completion in the editor."""
    found: dict[str, Any] = {}
    end = time.monotonic() + _SCHEMA_S
    for table in request.catalog.tables()[:_SHOWN_TABLES]:
        if time.monotonic() > end:
            break
        columns = [each.name for each in request.catalog.inspect.schema(table.full_name)]
        if table.namespace == DEFAULT_NAMESPACE:
            found[table.name] = columns
        else:
            inside = found.setdefault(table.namespace, {})
            if isinstance(inside, dict):  # not a table with the name of the namespace
                inside[table.name] = columns
    return JSONResponse(found)


def run(request: PageRequest) -> Response:
    """Run a query and show its result, or send it as a file."""
    text = request.given("sql")
    try:
        if request.given("format") in FORMATS:
            return _file(request, text, request.given("format"))
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
    size = _size(request)
    given, most = request.given("page", "1"), MAX_ROWS // size
    page = min(most, max(1, int(given) if given.isdecimal() and len(given) < 9 else 1))
    started = time.perf_counter()
    limits = QueryLimits(shorten=rows.MAX_CHARACTERS, interrupt=request.interrupt)
    limited = read_limited(_result_of(request, text, page * size + 1, limits))
    found = limited.rows
    seconds = time.perf_counter() - started
    shown = found.slice((page - 1) * size, size)
    return Result(
        grid=grid_of(shown),
        plot=plot_of(found.slice(0, page * size), request.given("plot", "auto")),
        seconds=seconds,
        page=page,
        has_more=found.num_rows > page * size and page < most,
        is_last=found.num_rows > page * size and page == most,
        is_truncated=limited.is_truncated,
        address=_address(request, text, page),
    )


def _size(request: PageRequest) -> int:
    given = request.given("rows")
    return int(given) if given in SIZES else PER_PAGE


def _address(request: PageRequest, text: str, page: int) -> str | None:
    """Return the address that shows this result; None if the address would be too long."""
    values = {"sql": text, "plot": request.given("plot", "auto"), "rows": str(_size(request))}
    defaults = {"plot": "auto", "rows": str(PER_PAGE), "page": "1"}
    values["page"] = str(page)
    kept = {key: value for key, value in values.items() if defaults.get(key) != value}
    address = f"/sql?{urlencode({**kept, 'run': '1'})}"
    return address if len(address) <= _MAX_ADDRESS else None


def _result_of(
    request: PageRequest, text: str, limit: int, limits: QueryLimits
) -> pa.RecordBatchReader:
    return request.catalog.query(
        text, limit=limit, timeout=TIMEOUT_S, batch_rows=rows.BATCH_ROWS, limits=limits
    )


def _file(request: PageRequest, text: str, kind: str) -> Response:
    # Request one row more than the limit, to detect that the result is longer.
    limits = QueryLimits(longest_value=rows.MAX_VALUE_BYTES, interrupt=request.interrupt)
    result = _result_of(request, text, rows.MAX_CSV_ROWS + 1, limits)
    try:
        file = (rows.as_csv if kind == "csv" else rows.as_parquet)(result)
    except pa.ArrowException as error:
        raise TxnLogEngineError(
            f"the result cannot be written as {kind.upper()}: {error}",
            engine="duckdb",
            help="Cast the column to another type, such as VARCHAR.",
        ) from error
    name = f"query-first-{file.rows}-rows.{kind}" if file.is_truncated else f"query.{kind}"
    return StreamingResponse(
        file.parts(),
        media_type=FORMATS[kind],
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
        plot=request.given("plot", "auto"),
        kinds=KINDS,
        size=str(_size(request)),
        sizes=SIZES,
        limits=LIMITS,
        **given,
    )
