"""The page of all tables, and the summary, files and schema of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.inspect.overview import TABLE_ORDERS
from deltasql.api.inspect.page import Page
from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from deltasql.api.inspect.overview import TableSummary
    from deltasql.console.request import PageRequest

TABLES_PER_PAGE = 50
FILES_PER_PAGE = 50
CHANGES_PER_PAGE = 25
HEAT = 240
# With more files than this, statistics take too long for a request, so the browser loads them
# after the page.
LARGE = 50_000
HOURS = {"24": "24 hours", "168": "7 days", "720": "30 days"}
ORDERS = ("added", "size", "path")


def overview(request: PageRequest) -> Response:
    """Show the overview; if it must read many files, the browser loads the body afterwards."""
    hours = request.choice("hours", *HOURS)
    inspect = request.catalog.inspect
    is_part = request.text("part") == "1"
    files = 0 if is_part or request.text("figures") == "1" else inspect.files_to_add_up()
    if files > LARGE:
        return request.page("overview.html", seen=None, uri=str(request.catalog.uri), files=files)
    seen = inspect.overview(hours=int(hours), limit=TABLES_PER_PAGE)
    order, search = request.choice("order", *TABLE_ORDERS), request.text("search")
    is_descending = request.choice("descending", "", "1") == "1"
    page = Page(seen.tables, seen.next)
    if request.cursor() or search or is_descending or order != "name":
        page = inspect.tables(
            limit=TABLES_PER_PAGE,
            cursor=request.cursor(),
            search=search,
            order=order,
            descending=is_descending,
        )
    return request.page(
        "overview_body.html" if is_part else "overview.html",
        seen=seen,
        uri=seen.uri,
        tables=page.items,
        following=page.next,
        search=search,
        order=order,
        descending=is_descending,
        hours=hours,
        spans=HOURS,
    )


def summary(request: PageRequest) -> Response:
    """Show the size of a table, its growth and its latest commits."""
    inspect = request.catalog.inspect
    table = inspect.table(request.name)
    recent = inspect.history(request.name, limit=6).items
    if is_large(request, table):
        return request.page("table.html", tab="summary", table=table, stats=None, recent=recent)
    return request.page(
        "table.html",
        tab="summary",
        table=table,
        stats=inspect.stats(request.name, partitions=HEAT),
        since=_first_commit(request),
        advice=inspect.advice(request.name),
        recent=recent,
    )


def _first_commit(request: PageRequest) -> datetime:
    inspect = request.catalog.inspect
    return inspect.commit(request.name, inspect.first_version(request.name)).committed_at


def figures(request: PageRequest) -> Response:
    """Return only the charts of a table, for a page that loads them afterwards."""
    inspect = request.catalog.inspect
    template = (
        "file_figures.html" if request.choice("of", "table", "files") == "files" else "figures.html"
    )
    return request.page(
        template,
        table=inspect.table(request.name),
        stats=inspect.stats(request.name, partitions=HEAT),
        since=_first_commit(request),
        advice=inspect.advice(request.name),
    )


def is_large(request: PageRequest, table: TableSummary) -> bool:
    """Return whether the browser should load the statistics after the page."""
    # Include removed files, because the growth chart reads them, too.
    return table.files_ever > LARGE and request.text("figures") != "1"


def files(request: PageRequest) -> Response:
    """Show the files of the latest version, or those that can match a predicate."""
    inspect = request.catalog.inspect
    table = inspect.table(request.name)
    order, predicate = request.choice("order", *ORDERS), request.text("predicate")
    is_last_first = request.choice("descending", "", "1") == "1"
    problem = None
    try:
        page = inspect.files(
            request.name,
            predicate=predicate or None,
            order=order,
            descending=is_last_first,
            limit=FILES_PER_PAGE,
            cursor=request.cursor(),
        )
    except (TxnLogSchemaError, TxnLogEngineError) as error:
        if not predicate:
            raise
        page, problem = Page(()), error
    has_figures = not predicate and request.cursor() is None
    is_later = is_large(request, table)
    return request.page(
        "files.html",
        400 if problem else 200,
        tab="files",
        problem=problem,
        table=table,
        page=page,
        order=order,
        descending=is_last_first,
        predicate=predicate,
        has_figures=has_figures,
        stats=inspect.stats(request.name, partitions=HEAT)
        if has_figures and not is_later
        else None,
    )


def schema(request: PageRequest) -> Response:
    """Show the current columns, and the versions that changed them."""
    inspect = request.catalog.inspect
    return request.page(
        "schema.html",
        tab="schema",
        table=inspect.table(request.name),
        columns=inspect.schema(request.name),
        page=inspect.schema_changes(request.name, limit=CHANGES_PER_PAGE, cursor=request.cursor()),
        is_first=request.cursor() is None,
    )
