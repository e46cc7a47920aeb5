"""Maintenance: what optimize and vacuum would do, and doing it while a page tells how far it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.exceptions import HTTPException

from deltasql.console.pages.table import LARGE, is_large
from deltasql.console.units import count, size

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog import Catalog
    from deltasql.console.asking import Ask
    from deltasql.console.jobs import Progress

PER_PAGE = 20


def show(ask: Ask) -> Response:
    """What the tables of the catalog need."""
    inspect = ask.catalog.inspect
    page = inspect.tables(limit=PER_PAGE, cursor=ask.cursor())
    advised = [
        (each, inspect.advice(each.name) if each.files <= LARGE else None) for each in page.items
    ]
    return ask.page(
        "maintenance.html",
        advised=advised,
        page=page,
        jobs=ask.console.jobs.latest()[:10],
        is_first=ask.cursor() is None,
    )


def one(ask: Ask) -> Response:
    """What one table needs, and the forms to do it."""
    inspect = ask.catalog.inspect
    table = inspect.table(ask.name)
    is_later = is_large(ask, table)
    return ask.page(
        "maintenance_cards.html" if ask.text("part") == "1" else "maintenance_table.html",
        table=table,
        advice=None if is_later else inspect.advice(ask.name),
        stats=None if is_later else inspect.stats(ask.name),
        jobs=ask.console.jobs.latest(ask.name)[:10],
    )


def optimize(ask: Ask) -> Response:
    """Begin to put small files together."""
    name = ask.catalog.inspect.table(ask.name).name
    job = ask.console.jobs.start("Optimize", name, partial(_optimize, ask.catalog, name))
    return ask.go(f"/jobs/{job.job_id}")


def vacuum(ask: Ask) -> Response:
    """Begin to delete what no retained version needs."""
    name = ask.catalog.inspect.table(ask.name).name
    if ask.form.get("confirm") != "yes":
        return ask.go(f"/maintenance/{quote(name, safe='')}?unconfirmed=1")
    job = ask.console.jobs.start("Vacuum", name, partial(_vacuum, ask.catalog, name))
    return ask.go(f"/jobs/{job.job_id}")


def job(ask: Ask) -> Response:
    """How far a piece of work is; `part=1` is what the page asks for again and again."""
    found = ask.console.jobs.get(ask.request.path_params["job_id"])
    if found is None:
        raise HTTPException(404)
    template = "job_state.html" if ask.text("part") == "1" else "job.html"
    return ask.page(template, job=found)


def _optimize(catalog: Catalog, name: str, tell: Progress) -> list[tuple[str, str]]:
    metrics = catalog.optimize(name, on_progress=tell)
    return [
        ("Files removed", count(metrics["numFilesRemoved"])),
        ("Files added", count(metrics["numFilesAdded"])),
        ("Partitions", count(metrics["partitionsOptimized"])),
    ]


def _vacuum(catalog: Catalog, name: str, tell: Progress) -> list[tuple[str, str]]:
    freed = catalog.inspect.advice(name).vacuum.bytes
    deleted = catalog.vacuum(name, dry_run=False)
    tell(1, 1)
    return [("Files deleted", count(len(deleted))), ("Freed, about", size(freed))]
