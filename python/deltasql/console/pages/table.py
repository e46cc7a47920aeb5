"""The pages of a table: summary, files and schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.inspect.page import Page
from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.inspect.overview import TableSummary
    from deltasql.console.request import PageRequest

FILES_PER_PAGE = 50
CHANGES_PER_PAGE = 25
HEAT = 240
# With more files, statistics take too long for a request; the browser loads them afterwards.
LARGE = 50_000
ORDERS = {"added": "Oldest first", "size": "Smallest first", "path": "By path"}


def summary(ask: PageRequest) -> Response:
    """Show the size of a table, its growth and its latest commits."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    recent = inspect.history(ask.name, limit=6).items
    if is_large(ask, table):
        return ask.page("table.html", tab="summary", table=table, stats=None, recent=recent)
    return ask.page(
        "table.html",
        tab="summary",
        table=table,
        stats=inspect.stats(ask.name, partitions=HEAT),
        advice=inspect.advice(ask.name),
        recent=recent,
    )


def figures(ask: PageRequest) -> Response:
    """Return only the charts of a table, for a page that loads them afterwards."""
    inspect = ask.catalog.inspect
    template = (
        "file_figures.html" if ask.choice("of", "table", "files") == "files" else "figures.html"
    )
    return ask.page(
        template,
        table=inspect.table(ask.name),
        stats=inspect.stats(ask.name, partitions=HEAT),
        advice=inspect.advice(ask.name),
    )


def is_large(ask: PageRequest, table: TableSummary) -> bool:
    """Return whether the browser should load the statistics after the page."""
    # Removed files count too: the growth chart reads them.
    return table.files_ever > LARGE and ask.text("figures") != "1"


def files(ask: PageRequest) -> Response:
    """Show the files of the latest version, or those that can match a predicate."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    order, predicate = ask.choice("order", *ORDERS), ask.text("predicate")
    is_last_first = ask.choice("descending", "", "1") == "1"
    problem = None
    try:
        page = inspect.files(
            ask.name,
            predicate=predicate or None,
            order=order,
            descending=is_last_first,
            limit=FILES_PER_PAGE,
            cursor=ask.cursor(),
        )
    except (TxnLogSchemaError, TxnLogEngineError) as error:
        if not predicate:
            raise
        page, problem = Page(()), error
    has_figures = not predicate and ask.cursor() is None
    is_later = is_large(ask, table)
    return ask.page(
        "files.html",
        400 if problem else 200,
        tab="files",
        problem=problem,
        table=table,
        page=page,
        order=order,
        orders=ORDERS,
        descending=is_last_first,
        predicate=predicate,
        has_figures=has_figures,
        stats=inspect.stats(ask.name, partitions=HEAT) if has_figures and not is_later else None,
    )


def schema(ask: PageRequest) -> Response:
    """Show the current columns, and the versions that changed them."""
    inspect = ask.catalog.inspect
    return ask.page(
        "schema.html",
        tab="schema",
        table=inspect.table(ask.name),
        columns=inspect.schema(ask.name),
        page=inspect.schema_changes(ask.name, limit=CHANGES_PER_PAGE, cursor=ask.cursor()),
        is_first=ask.cursor() is None,
    )
