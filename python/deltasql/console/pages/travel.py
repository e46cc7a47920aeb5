"""The time travel page: a version of a table, and its differences from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.console.pages.sql import query_name
from deltasql.console.pages.table import LARGE
from deltasql.console.rows import BATCH_ROWS, MAX_CHARACTERS, read_limited
from deltasql.console.values import Grid, grid_of, grid_of_dicts
from deltasql.engine.query_limits import QueryLimits
from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.inspect.diff import VersionDiff
    from deltasql.api.inspect.overview import TableSummary
    from deltasql.console.request import PageRequest

PREVIEW_ROWS = 20
DIFF_FILES = 10
DIFF_ROWS = 25
_PREVIEW_S = 20.0
# Rows are compared automatically only if the files have at most this many bytes.
_FEW_BYTES = 32 * 2**20


def show(request: PageRequest) -> Response:
    """Show a version of a table and its differences from another version."""
    inspect = request.catalog.inspect
    table = inspect.table(request.name)
    earliest = inspect.first_version(request.name)
    version = request.number("version", table.version)
    commit = inspect.commit(request.name, version)  # raises if the version does not exist
    # The first version has no earlier version to compare with.
    against = request.number("against", version - 1 if version > earliest else version)
    difference, unread = None, None
    if against != version:
        first, last = sorted((against, version))
        difference = inspect.diff(request.name, first, last, files_limit=DIFF_FILES)
        if _compares_rows(request, table, difference):
            try:
                difference = inspect.diff(
                    request.name,
                    first,
                    last,
                    files_limit=DIFF_FILES,
                    rows=True,
                    rows_limit=DIFF_ROWS,
                )
            except TxnLogError as error:
                unread = error.message or str(error)
    changed = None if difference is None else difference.rows
    rows, problem = preview(request, table, version)
    return request.page(
        "travel.html",
        tab="travel",
        table=table,
        version=version,
        against=against,
        earliest=earliest,
        commit=commit,
        columns=inspect.schema(request.name, version=version),
        rows=rows,
        problem=problem,
        limit=PREVIEW_ROWS,
        difference=difference,
        unread=unread,
        inserted=changed and grid_of_dicts(changed.columns, changed.inserted),
        deleted=changed and grid_of_dicts(changed.columns, changed.deleted),
    )


def _compares_rows(request: PageRequest, table: TableSummary, difference: VersionDiff) -> bool:
    """Return whether to compare rows: if the user requested it, or if it is fast."""
    chosen = request.choice("rows", "auto", "1", "0")
    size = difference.added.bytes + difference.removed.bytes
    return chosen == "1" or (chosen == "auto" and size <= _FEW_BYTES and table.files_ever <= LARGE)


def preview(
    request: PageRequest, table: TableSummary, version: int
) -> tuple[Grid | None, str | None]:
    """Return the first rows of a version, and a message if they are incomplete or unreadable."""
    sql = f"SELECT * FROM {query_name(table.namespace, table.short_name)}@{version}"  # noqa: S608
    try:
        limits = QueryLimits(shorten=MAX_CHARACTERS, interrupt=request.interrupt)
        rows = request.catalog.query(
            sql, limit=PREVIEW_ROWS, timeout=_PREVIEW_S, batch_rows=BATCH_ROWS, limits=limits
        )
        found = read_limited(rows)
    except TxnLogError as error:  # the files were vacuumed, or the storage is unavailable
        return None, error.message or str(error)
    cut = "This version exceeds the size limit: only its first rows are shown."
    return grid_of(found.rows), cut if found.is_truncated else None
