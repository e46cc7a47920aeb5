"""The commits of a table, and what their metrics say in a few words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from deltasql.console.units import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from deltasql.console.asking import Ask

PER_PAGE = 50
OPERATIONS = ("WRITE", "MERGE", "DELETE", "UPDATE", "OPTIMIZE", "VACUUM END", "RESTORE")
# What is told first, under the names that writers give it.
_SHOWN = (
    ("+{} rows", ("num_output_rows", "num_added_rows", "num_target_rows_inserted")),
    ("{} updated", ("num_updated_rows", "num_target_rows_updated")),
    ("−{} rows", ("num_deleted_rows", "num_target_rows_deleted")),
    ("+{} files", ("num_added_files", "num_files_added", "num_files", "num_target_files_added")),
    ("−{} files", ("num_removed_files", "num_files_removed", "num_target_files_removed")),
    ("{} files deleted", ("num_deleted_files",)),
)
_TIMES = ("execution_time_ms", "execution_time")
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def show(ask: Ask) -> Response:
    """Commits, newest first."""
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


def describe(metrics: Mapping[str, Any]) -> list[str]:
    """Say what a commit did, in a few words.

    >>> describe({"num_added_rows": 1200, "num_added_files": 1, "execution_time_ms": 1500})
    ['+1,200 rows', '+1 file', '1.5 s']
    """
    known = {_BOUNDARY.sub("_", name).lower(): value for name, value in metrics.items()}
    told = []
    for words, names in _SHOWN:
        amount = next((number for name in names if (number := _number(known.get(name)))), None)
        if amount:
            text = words.format(count(amount))
            told.append(text.removesuffix("s") if amount == 1 and text.endswith("s") else text)
    added = known.get("files_added")
    if isinstance(added, dict) and _number(added.get("totalSize")):
        told.append(f"{size(_number(added['totalSize']))} written")
    time = next((number for name in _TIMES if (number := _number(known.get(name)))), None)
    return [*told, duration(time / 1000)] if time else told


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
