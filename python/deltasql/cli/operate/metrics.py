"""Metrics and traces of long-running commands."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from deltasql.cli.context import talk

if TYPE_CHECKING:
    from collections.abc import Iterator


def _enable(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from deltasql import telemetry

        telemetry.enable_opentelemetry()


opentelemetry_option = click.option(
    "--opentelemetry",
    is_flag=True,
    expose_value=False,
    callback=_enable,
    help="Send metrics and spans to OpenTelemetry, as configured by opentelemetry-instrument.",
)


@contextmanager
def metrics_served(host: str, port: int | None) -> Iterator[None]:
    """Serve Prometheus metrics at a port while the block runs; do nothing if `port` is None."""
    if port is None:
        yield
        return
    from deltasql import telemetry

    registry = telemetry.enable_prometheus()
    import prometheus_client

    server, thread = prometheus_client.start_http_server(port, host, registry)
    talk(f"metrics at http://{host}:{server.server_port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
