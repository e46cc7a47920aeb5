"""The mirror pages: the publishing status of each table, failures, and a retry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.console.units import count

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.jobs import Progress
    from deltasql.console.request import PageRequest

PER_PAGE = 50
STATES = ("", "FAILED", "PENDING", "IN_FLIGHT", "COMPLETE")


def show(ask: PageRequest) -> Response:
    """Show all targets, unhealthy ones first."""
    found = ask.catalog.inspect.mirror()
    found.sort(key=lambda each: (not each.is_unhealthy, -each.pending, each.table, each.target))
    page = ask.number("page", 1, low=1, high=10_000)
    first = (page - 1) * PER_PAGE
    # A status has the display name of a table; a link needs the name that the API accepts.
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


def one(ask: PageRequest) -> Response:
    """Show the versions of one table at one target: failures first, then newest first."""
    target, only = ask.text("target", "table"), ask.choice("only", *STATES)
    inspect = ask.catalog.inspect
    statuses = inspect.mirror(ask.name)
    if target not in [each.target for each in statuses]:
        return ask.error_page(404, f"{ask.name} has no target {target}.")
    page = inspect.mirror_versions(
        ask.name, target=target, only=only or None, limit=PER_PAGE, cursor=ask.cursor()
    )
    return ask.page(
        "mirror_table.html",
        name=ask.name,
        statuses=statuses,
        shown=next((each for each in statuses if each.target == target), None),
        target=target,
        only=only,
        states=STATES,
        page=page,
        is_first=ask.cursor() is None,
        job=ask.state.jobs.get(ask.text("job")),
    )


def retry(ask: PageRequest) -> Response:
    """Start a job that publishes the missing versions of a target; its page shows the progress."""
    inspect, target = ask.catalog.inspect, ask.form.get("target", "table")
    if target not in [each.target for each in inspect.mirror(ask.name)]:
        return ask.error_page(404, f"{ask.name} has no target {target}.")
    place = f"/mirror/{quote(ask.name, safe='')}?target={quote(target, safe='')}"
    work = partial(_publish, ask.catalog, ask.name, target)
    job = ask.state.jobs.start("Publish", ask.name, place, work)
    return ask.go(f"{place}&job={quote(job.job_id, safe='')}")


def _publish(catalog: Catalog, name: str, target: str, tell: Progress) -> list[tuple[str, str]]:
    published = catalog.inspect.retry(name, target=target, on_progress=tell)
    return [("Versions published", count(published))]
