"""A table: its sizes, its files and its columns."""

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
# Adding up the files of a larger table takes longer than a page should.
LARGE = 50_000
ORDERS = {"added": "Oldest first", "size": "Smallest first", "path": "By path"}


def summary(ask: PageRequest) -> Response:
    """How large it is, how it grew, and what happened last."""
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
    """The charts of a table alone, for a page that did not wait for them."""
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
    """Tell whether a page should come first and what has to be added up for it later."""
    # Files that are long gone are added up, too: they tell how the table grew.
    return table.files_ever > LARGE and ask.text("figures") != "1"


def files(ask: PageRequest) -> Response:
    """The files of the latest version, or those that can match a predicate."""
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
    """The columns as they are, and every version that changed them."""
    inspect = ask.catalog.inspect
    return ask.page(
        "schema.html",
        tab="schema",
        table=inspect.table(ask.name),
        columns=inspect.schema(ask.name),
        page=inspect.schema_changes(ask.name, limit=CHANGES_PER_PAGE, cursor=ask.cursor()),
        is_first=ask.cursor() is None,
    )
