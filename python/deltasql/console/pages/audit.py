"""The page of the audit log: who changed what through the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.request import PageRequest

PER_PAGE = 50


def show(request: PageRequest) -> Response:
    """Show the audit log, newest first."""
    page = request.catalog.inspect.audit_log(limit=PER_PAGE, cursor=request.cursor())
    return request.page("audit.html", page=page, is_first=request.cursor() is None)
