"""The overview page: the tables of the catalog, their totals and the commits per hour."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.console.pages import table

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.request import PageRequest

PER_PAGE = 50
HOURS = {"24": "24 hours", "168": "7 days", "720": "30 days"}


def show(ask: PageRequest) -> Response:
    """Show the overview; if many files must be added up, the browser loads the body afterwards."""
    hours = ask.choice("hours", *HOURS)
    inspect = ask.catalog.inspect
    is_part = ask.text("part") == "1"
    files = 0 if is_part or ask.text("figures") == "1" else inspect.files_to_add_up()
    if files > table.LARGE:
        return ask.page("overview.html", seen=None, uri=str(ask.catalog.uri), files=files)
    seen = inspect.overview(hours=int(hours), limit=PER_PAGE)
    cursor = ask.cursor()
    if cursor is None:
        tables, following = seen.tables, seen.next
    else:
        later = inspect.tables(limit=PER_PAGE, cursor=cursor)
        tables, following = later.items, later.next
    return ask.page(
        "overview_body.html" if is_part else "overview.html",
        seen=seen,
        uri=seen.uri,
        tables=tables,
        following=following,
        hours=hours,
        spans=HOURS,
    )


def address(name: str, part: str = "") -> str:
    """Return the URL path of a table's page.

    >>> address("a b?<x>", "files")
    '/tables/a%20b%3F%3Cx%3E/files'
    """
    return f"/tables/{quoted(name)}" + (f"/{part}" if part else "")


def quoted(name: str) -> str:
    """Return a name percent-encoded for a URL path."""
    return quote(name, safe="")


def short(name: str) -> str:
    """Return a table's name without the default namespace."""
    return name.removeprefix("default.")
