"""A table: its sizes, its files and its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.asking import Ask

FILES_PER_PAGE = 50
CHANGES_PER_PAGE = 25
HEAT = 240
ORDERS = {"added": "Oldest first", "size": "Smallest first", "path": "By path"}


def summary(ask: Ask) -> Response:
    """How large it is, how it grew, and what happened last."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    stats = inspect.stats(ask.name, partitions=HEAT)
    recent = inspect.history(ask.name, limit=6).items
    advice = inspect.advice(ask.name)
    return ask.page(
        "table.html", tab="summary", table=table, stats=stats, recent=recent, advice=advice
    )


def files(ask: Ask) -> Response:
    """The files of the latest version, or those that can match a predicate."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    order, predicate = ask.choice("order", *ORDERS), ask.text("predicate")
    is_last_first = ask.choice("descending", "", "1") == "1"
    page = inspect.files(
        ask.name,
        predicate=predicate or None,
        order=order,
        descending=is_last_first,
        limit=FILES_PER_PAGE,
        cursor=ask.cursor(),
    )
    return ask.page(
        "files.html",
        tab="files",
        table=table,
        page=page,
        order=order,
        orders=ORDERS,
        descending=is_last_first,
        predicate=predicate,
        stats=None if predicate or ask.cursor() else inspect.stats(ask.name, partitions=HEAT),
    )


def schema(ask: Ask) -> Response:
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
