"""The maintenance pages: what optimize and vacuum would do, and jobs that run them."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from deltasql.console.jobs import Done, Undo
from deltasql.console.pages.job import start
from deltasql.console.pages.table import LARGE, is_large
from deltasql.console.units import count, quoted, size
from deltasql.exceptions import TxnLogTransactionError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.jobs import Work
    from deltasql.console.request import PageRequest
    from deltasql.model.progress import OnProgress

PER_PAGE = 20
BUDGET_S = 2.0
_ABOVE_ALL = 2**62


def show(request: PageRequest) -> Response:
    """Show which tables need maintenance."""
    inspect = request.catalog.inspect
    order = request.choice("order", "name", "files")
    is_descending = request.choice("descending", "", "1") == "1"
    page = inspect.tables(
        limit=PER_PAGE, cursor=request.cursor(), order=order, descending=is_descending
    )
    end = time.monotonic() + BUDGET_S
    # Advice is cached. If time runs out, a reload of the page fills in the remaining tables.
    advised = [
        (
            each,
            inspect.advice(each.name)
            if each.files_ever <= LARGE and time.monotonic() < end
            else None,
        )
        for each in page.items
    ]
    return request.page(
        "maintenance.html",
        advised=advised,
        page=page,
        order=order,
        descending=is_descending,
        jobs=request.state.jobs.latest()[:10],
        is_first=request.cursor() is None,
    )


def one(request: PageRequest) -> Response:
    """Show which maintenance one table needs, with forms to start it."""
    inspect = request.catalog.inspect
    table = inspect.table(request.name)
    is_part = request.text("part") == "1"
    is_later = not is_part and is_large(request, table)
    return request.page(
        "maintenance_cards.html" if is_part else "maintenance_table.html",
        table=table,
        advice=None if is_later else inspect.advice(request.name),
        stats=None if is_later else inspect.stats(request.name),
        jobs=request.state.jobs.latest(request.name)[:10],
    )


def optimize(request: PageRequest) -> Response:
    """Start a job that compacts small files."""
    name = request.catalog.inspect.table(request.name).name
    work = partial(_optimize, request.catalog, name)
    return _start(request, "Optimize", name, work, f"deltasql optimize {shlex.quote(name)}")


def vacuum(request: PageRequest) -> Response:
    """Start a job that deletes files which no retained version needs."""
    name = request.catalog.inspect.table(request.name).name
    if request.form.get("confirm") != "yes":
        return request.go(f"{_address(name)}?unconfirmed=1")
    work = partial(_vacuum, request.catalog, name)
    return _start(request, "Vacuum", name, work, f"deltasql vacuum {shlex.quote(name)} --yes")


def undo(request: PageRequest) -> Response:
    """Start a job that restores the version before a commit, if it is still the latest one."""
    name = request.catalog.inspect.table(request.name).name
    given = request.form.get("version", "")
    if not given.isdecimal() or not 0 < int(given) < _ABOVE_ALL:
        raise HTTPException(400, "version must be a number")
    version = int(given)
    work = partial(_undo, request.catalog, name, version)
    command = f"deltasql restore {shlex.quote(name)} {version - 1}"
    return _start(request, "Undo", name, work, command)


def _address(name: str) -> str:
    return f"/maintenance/{quoted(name)}"


def _start(request: PageRequest, title: str, name: str, work: Work, command: str) -> Response:
    return start(request, title, name, _address(name), work, command)


def _optimize(catalog: Catalog, name: str, on_progress: OnProgress) -> Done:
    before = catalog.table(name).version()
    metrics = catalog.optimize(name, on_progress=on_progress)
    outcome = [
        ("Files removed", count(metrics["numFilesRemoved"])),
        ("Files added", count(metrics["numFilesAdded"])),
        ("Partitions", count(metrics["partitionsOptimized"])),
    ]
    after = catalog.table(name).version()
    undo = None
    if after > before:
        note = f"restores version {count(after - 1)}, if no other commit followed"
        undo = Undo(f"{_address(name)}/undo", {"version": str(after)}, note)
    return Done(outcome, undo=undo)


def _vacuum(catalog: Catalog, name: str, on_progress: OnProgress) -> Done:
    deleted = catalog.vacuum(name, dry_run=False, on_progress=on_progress)
    freed = 0
    if deleted:  # then the vacuum has recorded what it deletes
        (started,) = catalog.inspect.history(name, operation="VACUUM START", limit=1).items
        freed = started.metrics["sizeOfDataToDelete"]
    return Done(
        [("Files deleted", count(len(deleted))), ("Freed, about", size(freed))],
        notes=["Deleted files cannot be restored."],
    )


def _undo(catalog: Catalog, name: str, version: int, on_progress: OnProgress) -> Done:
    with catalog.begin() as tx:
        latest = tx.snapshot(name).version
        if latest != version:
            raise TxnLogTransactionError(
                f"version {version} of {name} is no longer the latest: version {latest} is",
                help=f"A restore of version {version - 1} would also undo the later commits: look "
                "at the history first.",
            )
        tx.restore(name, version - 1)
    return Done([("Restored version", count(version - 1))])
