"""Long-running commands: stop cleanly on signals, and serve metrics."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from deltasql.cli.output import message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_STOP = (signal.SIGTERM, signal.SIGINT)
_END = b"\x00"  # no signal has the number 0


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; a second signal raises KeyboardInterrupt.

    A thread sets the event, not the signal handler. The handler runs in the main thread, which may
    be waiting for the event and hold the event's lock. Setting the event there would deadlock.
    """
    stop = threading.Event()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:  # the command did not react to the event
            raise KeyboardInterrupt

    # Python writes the signal number to this pipe; the thread reads it.
    descriptor = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    handlers = [(number, signal.signal(number, handle)) for number in _STOP]
    thread = threading.Thread(target=_set_on_signal, args=(read_end, stop), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in handlers:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(descriptor)
        os.write(write_end, _END)
        thread.join()
        os.close(read_end)
        os.close(write_end)


def _set_on_signal(read_end: int, stop: threading.Event) -> None:
    while True:
        found = os.read(read_end, 16)
        if {*found} & {*_STOP}:
            stop.set()
        if _END in found:
            return


def _enable(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from deltasql import telemetry

        telemetry.enable_opentelemetry()


opentelemetry_option = click.option(
    "--opentelemetry",
    is_flag=True,
    expose_value=False,
    callback=_enable,
    help="Send metrics and spans to OpenTelemetry. Start the command with "
    "opentelemetry-instrument, which configures the exporters.",
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
    message(f"metrics at http://{host}:{server.server_port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
