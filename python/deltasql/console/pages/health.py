"""Health: what the doctor finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.asking import Ask

PER_PAGE = 100
_RANK = {"failure": 0, "warning": 1, "ok": 2}


def show(ask: Ask) -> Response:
    """Every check, what is wrong first."""
    report = ask.catalog.inspect.doctor()
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
