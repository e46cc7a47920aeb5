"""The state of the catalog: the report of `doctor`, and metrics for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from deltasql import telemetry

if TYPE_CHECKING:
    from deltasql.console.request import PageRequest

PER_PAGE = 100
_RANK = {"failure": 0, "warning": 1, "ok": 2}


def show(request: PageRequest) -> Response:
    """Show every check, problems first."""
    report = request.state.reports.latest(request.catalog)
    checks = sorted(report.checks, key=lambda each: _RANK[each.status])
    page = request.number("page", 1, low=1, high=10_000)
    first = (page - 1) * PER_PAGE
    return request.page(
        "health.html",
        report=report,
        checks=checks[first : first + PER_PAGE],
        number=page,
        has_more=len(checks) > first + PER_PAGE,
    )


def metrics(request: PageRequest) -> Response:
    """Return all metrics; gauges of the catalog, the mirror and the files are updated first."""
    import prometheus_client

    registry = telemetry.enable_prometheus()
    request.catalog.health()
    request.catalog.mirror.status(files=False)
    request.catalog.inspect.update_file_metrics()
    return Response(
        prometheus_client.generate_latest(registry),
        media_type=prometheus_client.CONTENT_TYPE_LATEST,
    )
