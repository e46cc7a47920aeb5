"""The state that all pages of one console share."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql.console.jobs import Jobs

if TYPE_CHECKING:
    import jinja2

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.console.security import Gate

_KEEP_REPORT_S = 30.0


class DoctorReports:
    """The latest report of `doctor`. All checks together are slow, so visitors share one report."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._latest: DoctorReport | None = None
        self._expires_at = 0.0

    def latest(self, catalog: Catalog) -> DoctorReport:
        """Return a report that is at most half a minute old."""
        with self._guard:
            if self._latest is None or time.monotonic() >= self._expires_at:
                self._latest = catalog.inspect.doctor()
                self._expires_at = time.monotonic() + _KEEP_REPORT_S
            return self._latest


@dataclass(frozen=True, slots=True)
class ConsoleState:
    """The catalog of a console, its access control, its templates and its jobs."""

    catalog: Catalog
    gate: Gate
    templates: jinja2.Environment
    allows_writes: bool = False
    jobs: Jobs = field(default_factory=Jobs)
    reports: DoctorReports = field(default_factory=DoctorReports)
