"""The migration pages: import and follow logs, and choose who accepts commits: log or database."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from deltasql.console.jobs import Done, Undo
from deltasql.console.pages.job import start
from deltasql.console.units import count, quoted, size
from deltasql.exceptions import TxnLogConfigError
from deltasql.storage.location import is_same_location, location_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.request import PageRequest
    from deltasql.migrate.authority.cutover import CutoverReport
    from deltasql.migrate.authority.rollback import RollbackReport
    from deltasql.migrate.importing.report import ImportReport
    from deltasql.model.progress import OnProgress

    _HandOver = Callable[[Catalog, str, bool, OnProgress], Done]

PER_PAGE = 50


def show(request: PageRequest) -> Response:
    """Show where the log of each table is, and a form to import or follow another one."""
    jobs = [each for each in request.state.jobs.latest() if each.page.startswith("/migration")]
    return request.page(
        "migration.html",
        page=request.catalog.inspect.tables(limit=PER_PAGE, cursor=request.cursor()),
        is_first=request.cursor() is None,
        roots=request.state.import_from,
        source=request.text("source"),
        name=request.text("name"),
        jobs=jobs[:10],
    )


def one(request: PageRequest) -> Response:
    """Show how the authority of one table can be moved."""
    return request.page(
        "migration_table.html",
        table=request.catalog.inspect.table(request.name),
        jobs=request.state.jobs.latest(request.name)[:10],
    )


def bring_in(request: PageRequest) -> Response:
    """Start a job that imports or follows a log, or that shows what the import would do."""
    source, name = (request.form.get(each, "").strip() for each in ("source", "name"))
    _check_source(request, source)
    action = request.form.get("action", "")
    given = [shlex.quote(source), *(["--name", shlex.quote(name)] if name else [])]
    page = f"/migration?{urlencode({'source': source, 'name': name})}"
    load = partial(_import, request.catalog, source, name or None)
    if action == "check":
        work, title = partial(load, True), "Check import"
        command = f"deltasql import {' '.join(given)} --dry-run"
    elif action == "import":
        work, title = partial(load, False), "Import"
        command = f"deltasql import {' '.join(given)}"
    elif action == "follow":
        work, title = partial(_follow, request.catalog, source, name or None), "Follow"
        command = f"deltasql follow {' '.join(given)}"
    else:
        raise HTTPException(400, "action must be check, import or follow")
    return start(request, title, name or source, page, work, command)


def refresh(request: PageRequest) -> Response:
    """Start a job that loads the new commits of a followed log."""
    name = request.catalog.inspect.table(request.name).name
    work = partial(_follow, request.catalog, name, None)
    return start(
        request, "Refresh", name, _address(name), work, f"deltasql follow {shlex.quote(name)}"
    )


def cutover(request: PageRequest) -> Response:
    """Start a job that shows what a cutover would do, or that makes the database the authority."""
    return _hand_over(request, "Cutover", _cutover)


def rollback(request: PageRequest) -> Response:
    """Start a job that shows what a rollback would do, or that makes the log the authority."""
    return _hand_over(request, "Rollback", _rollback)


def _hand_over(request: PageRequest, title: str, work: _HandOver) -> Response:
    name = request.catalog.inspect.table(request.name).name
    expected = request.form.get("expected")
    if expected is not None and expected != _identity(request.catalog, name):
        raise HTTPException(
            409,
            f"{name} has changed since the action, so it was not undone: check the table first.",
        )
    is_check = request.form.get("check") == "yes"
    if not is_check and request.form.get("confirm") != "yes":
        return request.go(f"{_address(name)}?unconfirmed=1")
    command = f"deltasql {title.lower()} {shlex.quote(name)} {'--dry-run' if is_check else '--yes'}"
    title = f"Check {title.lower()}" if is_check else title
    job = partial(work, request.catalog, name, is_check)
    return start(request, title, name, _address(name), job, command)


def _address(name: str) -> str:
    return f"/migration/{quoted(name)}"


def _identity(catalog: Catalog, name: str) -> str:
    """Return a text that changes if the name refers to another table, or its authority changes."""
    row = catalog.table(name).row
    return f"{row.table_uuid} {'follows' if row.is_following else 'manages'}"


def _check_source(request: PageRequest, source: str) -> None:
    """Raise unless the console may read a log at this location.

    These are the locations that `--import-from` names, and those of tables that were in the
    catalog, so that a rollback can be undone.
    """
    if not source:
        raise HTTPException(400, "Give the location of the table.")
    try:
        key = location_key(source)
    except (TxnLogConfigError, ValueError) as error:  # a path with a NUL is a ValueError
        raise HTTPException(400, str(error)) from error
    if any(key.startswith(location_key(root)) for root in request.state.import_from):
        return
    if not any(is_same_location(source, each.location) for each in request.catalog.dropped()):
        raise HTTPException(
            403,
            f"{source} is not below a location that deltasql ui --import-from names.",
        )


def _import(
    catalog: Catalog, source: str, name: str | None, is_check: bool, on_progress: OnProgress
) -> Done:
    report = catalog.import_table(source, name=name, dry_run=is_check, on_progress=on_progress)
    undo = None
    if report.state == "imported" and report.table:
        undo = _remove(catalog, report.table)
    return Done(
        _imported(report),
        undo=undo,
        notes=_notes(report),
        problem=None if report.ok else report.summary(),
        opens=None if is_check else report.table,
    )


def _imported(report: ImportReport) -> list[tuple[str, str]]:
    return [
        ("Result", report.state),
        ("Table", report.table or "–"),
        ("Versions", _versions(report.first_version, report.last_version)),
        (
            "Commits to load" if report.state.startswith("would") else "Commits",
            count(report.commits),
        ),
        ("Files", count(report.live_files)),
        ("Size", size(report.live_bytes)),
    ]


def _follow(catalog: Catalog, source: str, name: str | None, on_progress: OnProgress) -> Done:
    report = catalog.follow(source, name=name, on_progress=on_progress)
    return Done(
        [
            ("Result", report.state),
            ("Table", report.table),
            ("Versions", _versions(report.first_version, report.last_version)),
            ("Commits added", count(report.commits)),
            ("Files added", count(report.files)),
        ],
        undo=_remove(catalog, report.table) if report.state == "followed" else None,
        notes=report.notes,
        opens=report.table,
    )


def _cutover(catalog: Catalog, name: str, is_check: bool, on_progress: OnProgress) -> Done:
    report = catalog.cutover(name, dry_run=is_check, on_progress=on_progress)
    label = "Commits of the log to load" if is_check else "Commits of the log loaded"
    undo = None
    if report.state == "cut over":
        undo = Undo(
            f"{_address(name)}/rollback",
            {"confirm": "yes", "expected": _identity(catalog, name)},
            "makes the log the authority again, and removes the table from the catalog",
        )
    changes = []
    if report.version is not None:
        changes = [f"version {count(report.version)} enables in-commit timestamps"]
    return _handed_over(report, (label, count(report.caught_up)), changes, undo)


def _rollback(catalog: Catalog, name: str, is_check: bool, on_progress: OnProgress) -> Done:
    is_following = catalog.table(name).is_following
    report = catalog.rollback(name, dry_run=is_check, on_progress=on_progress)
    label = "Versions to publish" if is_check else "Versions published"
    undo = None
    if report.state == "rolled back":
        action = "follow" if is_following else "import"
        undo = Undo(
            "/migrate",
            {"source": report.location, "name": name, "action": action},
            f"{action}s the log again as {name}",
        )
    changes = []
    if report.timestamps_dropped:
        changes = [f"version {count(report.version)} drops in-commit timestamps"]
    return _handed_over(report, (label, count(report.published)), changes, undo)


def _handed_over(
    report: CutoverReport | RollbackReport,
    row: tuple[str, str],
    changes: list[str],
    undo: Undo | None,
) -> Done:
    is_gone = report.state == "rolled back"
    return Done(
        [
            ("Result", report.state),
            row,
            ("Version", "–" if report.version is None else count(report.version)),
            ("Compared with the log", "no" if report.verification is None else "yes"),
        ],
        undo=undo,
        notes=[*changes, *_notes(report)],
        problem=None if report.ok else report.summary(),
        page="/migration" if is_gone else None,
    )


def _remove(catalog: Catalog, name: str) -> Undo:
    return Undo(
        f"{_address(name)}/rollback",
        {"confirm": "yes", "expected": _identity(catalog, name)},
        "removes the table from the catalog; its log and its files stay",
    )


def _versions(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "–"
    return count(first) if first == last else f"{count(first)} to {count(last)}"


def _notes(report: ImportReport | CutoverReport | RollbackReport) -> list[str]:
    return [*report.notes, *(f"warning: {each}" for each in report.warnings)]
