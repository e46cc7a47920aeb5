"""The mirror pages: the publishing status of each table, failures, and a retry."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

from deltasql.console.jobs import Done
from deltasql.console.units import count, quoted

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.request import PageRequest
    from deltasql.model.progress import OnProgress

PER_PAGE = 50
STATES = ("", "FAILED", "PENDING", "IN_FLIGHT", "COMPLETE")


def show(request: PageRequest) -> Response:
    """Show all targets, unhealthy ones first."""
    found = request.catalog.inspect.mirror()
    order = request.choice("order", "state", "table", "pending", "lag")
    is_descending = request.choice("descending", "", "1") == "1"
    found.sort(key=lambda each: (not each.is_unhealthy, -each.pending, each.table, each.target))
    if order == "table":
        found.sort(key=lambda each: (each.table, each.target), reverse=is_descending)
    elif order != "state":
        found.sort(
            key=lambda each: each.pending if order == "pending" else each.lag_s,
            reverse=is_descending,
        )
    page = request.number("page", 1, low=1, high=10_000)
    first = (page - 1) * PER_PAGE
    return request.page(
        "mirror.html",
        targets=found[first : first + PER_PAGE],
        all=found,
        order=order,
        descending=is_descending,
        number=page,
        has_more=len(found) > first + PER_PAGE,
        mode=request.catalog.mirror.mode,
    )


def one(request: PageRequest) -> Response:
    """Show the versions of one table at one target: failures first, then newest first."""
    target, only = request.text("target", "table"), request.choice("only", *STATES)
    inspect = request.catalog.inspect
    statuses = inspect.mirror(request.name)
    if target not in [each.target for each in statuses]:
        return request.error_page(404, f"{request.name} has no target {target}.")
    page = inspect.mirror_versions(
        request.name, target=target, only=only or None, limit=PER_PAGE, cursor=request.cursor()
    )
    return request.page(
        "mirror_table.html",
        name=request.name,
        statuses=statuses,
        shown=next((each for each in statuses if each.target == target), None),
        target=target,
        only=only,
        states=STATES,
        page=page,
        is_first=request.cursor() is None,
        job=request.state.jobs.get(request.text("job")),
    )


def retry(request: PageRequest) -> Response:
    """Start a job that publishes the missing versions of a target; its page shows the progress."""
    inspect, target = request.catalog.inspect, request.form.get("target", "table")
    if target not in [each.target for each in inspect.mirror(request.name)]:
        return request.error_page(404, f"{request.name} has no target {target}.")
    address = f"/mirror/{quoted(request.name)}?target={quoted(target)}"
    work = partial(_publish, request.catalog, request.name, target)
    command = f"deltasql mirror publish {shlex.quote(request.name)}"
    job = request.state.jobs.start(
        "Publish", request.name, address, work, user=request.visitor.user or "", command=command
    )
    return request.go(f"{address}&job={quoted(job.job_id)}")


def _publish(catalog: Catalog, name: str, target: str, on_progress: OnProgress) -> Done:
    published = catalog.inspect.retry(name, target=target, on_progress=on_progress)
    return Done([("Versions published", count(published))])
