"""The metrics endpoint for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from deltasql import telemetry

if TYPE_CHECKING:
    from deltasql.console.request import PageRequest


def show(ask: PageRequest) -> Response:
    """Return all metrics; gauges of the catalog, the mirror and the files are updated first."""
    import prometheus_client

    registry = telemetry.enable_prometheus()
    ask.catalog.health()
    ask.catalog.mirror.status(files=False)
    ask.catalog.inspect.update_file_metrics()
    return Response(
        prometheus_client.generate_latest(registry),
        media_type=prometheus_client.CONTENT_TYPE_LATEST,
    )
