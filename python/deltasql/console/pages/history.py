"""The pages of commits: the history of a table, and transactions over several tables."""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import TYPE_CHECKING, Any

from deltasql.console.units import duration, size
from deltasql.exceptions import TxnLogTransactionError, redact
from deltasql.model.counts import many
from deltasql.model.row_changes import by_snake_case, first_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from deltasql.api.inspect.diff import VersionDiff
    from deltasql.api.inspect.files import FileEntry
    from deltasql.api.inspect.history import CommitEntry, Participant
    from deltasql.console.request import PageRequest

COMMITS_PER_PAGE = 50
TRANSACTIONS_PER_PAGE = 25
COMMIT_FILES = 100
_ABOVE_ALL = 2**62  # larger numbers do not fit into a column of the database
# The actions of a commit with more files than this are not read for its page.
JSON_FILES, JSON_ACTIONS, _MAX_ACTION = 2_000, 100, 20_000
OPERATIONS = ("WRITE", "MERGE", "DELETE", "UPDATE", "OPTIMIZE", "VACUUM END", "RESTORE")
# Metrics that count files, with the text before and after the count. Writers use different names.
_FILES = (
    ("+", "", ("num_added_files", "num_files_added", "num_files", "num_target_files_added")),
    ("−", "", ("num_removed_files", "num_files_removed", "num_target_files_removed")),
    ("", " deleted", ("num_deleted_files",)),
)
_TIMES = ("execution_time_ms", "execution_time")


def show(request: PageRequest) -> Response:
    """Show the commits of a table, newest first."""
    operation = request.text("operation")
    inspect = request.catalog.inspect
    page = inspect.history(
        request.name, operation=operation or None, limit=COMMITS_PER_PAGE, cursor=request.cursor()
    )
    return request.page(
        "history.html",
        tab="history",
        table=inspect.table(request.name),
        page=page,
        operation=operation,
        operations=OPERATIONS,
        is_first=request.cursor() is None,
    )


def commit(request: PageRequest) -> Response:
    """Show one commit: its files, parameters and metrics, and the other tables it changed."""
    inspect = request.catalog.inspect
    version = min(int(request.http.path_params["version"]), _ABOVE_ALL)
    table = inspect.table(request.name)
    found = inspect.commit(request.name, version)  # raises if the version does not exist
    earliest = inspect.first_version(request.name)
    difference: VersionDiff | None = None
    first_files: tuple[FileEntry, ...] = ()
    if version > earliest:
        difference = inspect.diff(request.name, version - 1, version, files_limit=COMMIT_FILES)
        changed = difference.added.files + difference.removed.files
    else:
        first_files = inspect.files(request.name, version=version, limit=COMMIT_FILES).items
        changed = request.catalog.table(request.name).snapshot(version).totals().num_files
    lines = inspect.commit_json(request.name, version) if changed <= JSON_FILES else ()
    actions = [(next(iter(json.loads(line))), _pretty(line)) for line in lines[:JSON_ACTIONS]]
    return request.page(
        "commit.html",
        tab="history",
        table=table,
        commit=found,
        earliest=earliest,
        difference=difference,
        first_files=first_files,
        changed=changed,
        event=inspect.transaction(found.txn_id) if found.group_size > 1 else None,
        actions=actions,
        kinds=Counter(next(iter(json.loads(line))) for line in lines),
        more_actions=len(lines) - len(actions),
    )


def _pretty(line: str) -> str:
    """Format an action for reading; secrets in settings are masked."""
    text = json.dumps(json.loads(line), indent=2, ensure_ascii=False)
    return redact(text if len(text) <= _MAX_ACTION else text[: _MAX_ACTION - 1] + "…")


def transactions(request: PageRequest) -> Response:
    """Show transactions, newest first."""
    table = request.text("table")
    page = request.catalog.inspect.transactions(
        table=table or None, limit=TRANSACTIONS_PER_PAGE, cursor=request.cursor()
    )
    return request.page(
        "transactions.html", page=page, table=table, is_first=request.cursor() is None
    )


def transaction(request: PageRequest) -> Response:
    """Show one transaction with its participants."""
    try:
        event = request.catalog.inspect.transaction(request.http.path_params["txn_id"])
    except TxnLogTransactionError as error:  # no transaction has this id
        return request.error_page(404, error.message or str(error), error.help)
    return request.page("transaction.html", event=event)


def describe(commit: CommitEntry | Participant) -> list[str]:
    """Return a short description of a commit: rows and files it changed, and its duration."""
    rows, known = commit.rows, by_snake_case(commit.metrics)
    parts = []
    if rows.inserted:
        parts.append(f"+{many(rows.inserted, 'row')}")
    if rows.updated:
        parts.append(f"{rows.updated:,} updated")
    if rows.deleted:
        parts.append(f"−{many(rows.deleted, 'row')}")
    for before, after, names in _FILES:
        if files := _metric(known, names):
            parts.append(f"{before}{many(int(files), 'file')}{after}")
    added = known.get("files_added")
    if isinstance(added, dict) and (written := _metric(added, ("totalSize",))):
        parts.append(f"{size(written)} written")
    if time := _metric(known, _TIMES):
        parts.append(duration(time / 1000))
    return parts


def _metric(metrics: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """Return the first of these metrics; None for values such as `inf`, which cannot be shown."""
    number = first_number(metrics, names)
    return number if number is not None and isfinite(number) else None
