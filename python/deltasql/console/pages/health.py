"""The health page: the report of `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.request import PageRequest

PER_PAGE = 100
_RANK = {"failure": 0, "warning": 1, "ok": 2}


def show(ask: PageRequest) -> Response:
    """Show every check, problems first."""
    report = ask.state.reports.latest(ask.catalog)
    checks = sorted(report.checks, key=lambda each: _RANK[each.status])
    page = ask.number("page", 1, low=1, high=10_000)
    first = (page - 1) * PER_PAGE
    return ask.page(
        "health.html",
        report=report,
        checks=checks[first : first + PER_PAGE],
        number=page,
        has_more=len(checks) > first + PER_PAGE,
    )
