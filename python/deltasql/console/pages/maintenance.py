"""The maintenance pages: what optimize and vacuum would do, and jobs that run them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.exceptions import HTTPException

from deltasql.console.pages.table import LARGE, is_large
from deltasql.console.units import count, size

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.jobs import Progress, Work
    from deltasql.console.request import PageRequest

PER_PAGE = 20
BUDGET_S = 2.0
TITLES = ("Optimize", "Vacuum")


def show(ask: PageRequest) -> Response:
    """Show which tables need maintenance."""
    inspect = ask.catalog.inspect
    page = inspect.tables(limit=PER_PAGE, cursor=ask.cursor())
    end = time.monotonic() + BUDGET_S
    # Advice is cached: tables skipped for lack of time are filled in when the page is reloaded.
    advised = [
        (
            each,
            inspect.advice(each.name)
            if each.files_ever <= LARGE and time.monotonic() < end
            else None,
        )
        for each in page.items
    ]
    return ask.page(
        "maintenance.html",
        advised=advised,
        page=page,
        jobs=ask.state.jobs.latest()[:10],
        is_first=ask.cursor() is None,
    )


def one(ask: PageRequest) -> Response:
    """Show which maintenance one table needs, with forms to start it."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    is_part = ask.text("part") == "1"
    is_later = not is_part and is_large(ask, table)
    return ask.page(
        "maintenance_cards.html" if is_part else "maintenance_table.html",
        table=table,
        advice=None if is_later else inspect.advice(ask.name),
        stats=None if is_later else inspect.stats(ask.name),
        jobs=ask.state.jobs.latest(ask.name)[:10],
    )


def optimize(ask: PageRequest) -> Response:
    """Start a job that compacts small files."""
    name = ask.catalog.inspect.table(ask.name).name
    return _begun(ask, "Optimize", name, partial(_optimize, ask.catalog, name))


def vacuum(ask: PageRequest) -> Response:
    """Start a job that deletes files which no retained version needs."""
    name = ask.catalog.inspect.table(ask.name).name
    if ask.form.get("confirm") != "yes":
        return ask.go(f"{_place(name)}?unconfirmed=1")
    return _begun(ask, "Vacuum", name, partial(_vacuum, ask.catalog, name))


def _place(name: str) -> str:
    return f"/maintenance/{quote(name, safe='')}"


def _begun(ask: PageRequest, title: str, name: str, work: Work) -> Response:
    """Start a job and redirect to its page, or to the job that already runs on the table."""
    job = ask.state.jobs.start(title, name, _place(name), work)
    refused = "" if job.title == title else f"?refused={title}"
    return ask.go(f"/jobs/{job.job_id}{refused}")


def job(ask: PageRequest) -> Response:
    """Show the progress of a job; the page polls its state with `part=1`."""
    found = ask.state.jobs.get(ask.request.path_params["job_id"])
    if found is None:
        raise HTTPException(404)
    template = "job_state.html" if ask.text("part") == "1" else "job.html"
    return ask.page(template, job=found, refused=ask.choice("refused", "", *TITLES))


def _optimize(catalog: Catalog, name: str, tell: Progress) -> list[tuple[str, str]]:
    metrics = catalog.optimize(name, on_progress=tell)
    return [
        ("Files removed", count(metrics["numFilesRemoved"])),
        ("Files added", count(metrics["numFilesAdded"])),
        ("Partitions", count(metrics["partitionsOptimized"])),
    ]


def _vacuum(catalog: Catalog, name: str, tell: Progress) -> list[tuple[str, str]]:
    freed = catalog.inspect.advice(name).vacuum.bytes
    deleted = catalog.vacuum(
        name, dry_run=False, on_progress=lambda each: tell(each.done, each.total)
    )
    return [("Files deleted", count(len(deleted))), ("Freed, about", size(freed))]
