"""The mirror: how far each table is published, what failed, and trying it again."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.asking import Ask

PER_PAGE = 50
STATES = ("", "FAILED", "PENDING", "IN_FLIGHT", "COMPLETE")


def show(ask: Ask) -> Response:
    """All tables, those with trouble first."""
    found = ask.catalog.inspect.mirror()
    found.sort(key=lambda each: (not each.is_unhealthy, -each.pending, each.table, each.target))
    page = ask.number("page", 1, low=1, high=10_000)
    first = (page - 1) * PER_PAGE
    # A status tells a table as people read it; a link needs the name that the API takes.
    names = {each.row.full_name: each.full_name for each in ask.catalog.tables()}
    return ask.page(
        "mirror.html",
        targets=found[first : first + PER_PAGE],
        names=names,
        all=found,
        number=page,
        has_more=len(found) > first + PER_PAGE,
        mode=ask.catalog.mirror.mode,
    )


def one(ask: Ask, *, problem: str | None = None, done: str | None = None) -> Response:
    """The versions of one table at one target: failures first, then newest first."""
    target, only = ask.text("target", "table"), ask.choice("only", *STATES)
    inspect = ask.catalog.inspect
    statuses = inspect.mirror(ask.name)
    page = inspect.mirror_versions(
        ask.name, target=target, only=only or None, limit=PER_PAGE, cursor=ask.cursor()
    )
    return ask.page(
        "mirror_table.html",
        502 if problem else 200,
        name=ask.name,
        statuses=statuses,
        shown=next((each for each in statuses if each.target == target), None),
        target=target,
        only=only,
        states=STATES,
        page=page,
        is_first=ask.cursor() is None,
        problem=problem,
        done=done or ask.text("done"),
    )


def retry(ask: Ask) -> Response:
    """Publish what is missing, and say what came of it."""
    target = ask.form.get("target", "table")
    try:
        published = ask.catalog.inspect.retry(ask.name, target=target)
    except TxnLogError as error:
        return one(ask, problem=str(error))
    place = f"/mirror/{quote(ask.name, safe='')}"
    return ask.go(f"{place}?target={quote(target, safe='')}&done={published}")
