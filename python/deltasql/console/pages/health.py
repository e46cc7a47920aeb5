"""Health: what the doctor finds."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.console.asking import Ask

PER_PAGE = 100
KEPT_S = 30.0
_RANK = {"failure": 0, "warning": 1, "ok": 2}


class Health:
    """The latest report: looking at everything is work, and done once for all who ask meanwhile."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: DoctorReport | None = None
        self._until = 0.0

    def report(self, catalog: Catalog) -> DoctorReport:
        with self._guard:
            if self._known is None or time.monotonic() >= self._until:
                self._known = catalog.inspect.doctor()
                self._until = time.monotonic() + KEPT_S
            return self._known


def show(ask: Ask) -> Response:
    """Every check, what is wrong first."""
    report = ask.console.health.report(ask.catalog)
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
