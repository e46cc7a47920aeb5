"""The history page of a table: its commits and a short description of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.console.units import count, duration, size
from deltasql.model.row_changes import by_snake_case, first_number

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.inspect.history import CommitEntry, Participant
    from deltasql.console.request import PageRequest

PER_PAGE = 50
OPERATIONS = ("WRITE", "MERGE", "DELETE", "UPDATE", "OPTIMIZE", "VACUUM END", "RESTORE")
# Metrics that count files; writers use different names for them.
_FILES = (
    ("+{} files", ("num_added_files", "num_files_added", "num_files", "num_target_files_added")),
    ("−{} files", ("num_removed_files", "num_files_removed", "num_target_files_removed")),
    ("{} files deleted", ("num_deleted_files",)),
)
_TIMES = ("execution_time_ms", "execution_time")


def show(ask: PageRequest) -> Response:
    """Show the commits of a table, newest first."""
    operation = ask.text("operation")
    inspect = ask.catalog.inspect
    page = inspect.history(
        ask.name, operation=operation or None, limit=PER_PAGE, cursor=ask.cursor()
    )
    return ask.page(
        "history.html",
        tab="history",
        table=inspect.table(ask.name),
        page=page,
        operation=operation,
        operations=OPERATIONS,
        is_first=ask.cursor() is None,
    )


def describe(commit: CommitEntry | Participant) -> list[str]:
    """Return a short description of a commit: rows and files it changed, and its duration."""
    rows, known = commit.rows, by_snake_case(commit.metrics)
    amounts: list[tuple[str, float | None]] = [
        ("+{} rows", rows.inserted),
        ("{} updated", rows.updated),
        ("−{} rows", rows.deleted),
        *((words, first_number(known, names)) for words, names in _FILES),
    ]
    told = []
    for words, amount in amounts:
        if amount:
            text = words.format(count(amount))
            told.append(text.removesuffix("s") if amount == 1 and text.endswith("s") else text)
    added = known.get("files_added")
    if isinstance(added, dict) and (written := first_number(added, ("totalSize",))):
        told.append(f"{size(written)} written")
    time = first_number(known, _TIMES)
    return [*told, duration(time / 1000)] if time else told
