"""`deltasql ui` started as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
from click.testing import CliRunner

import deltasql
from deltasql.cli.main import main
from deltasql.console.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri


def lines_until(stream: Iterator[str], pattern: str) -> tuple[list[str], str]:
    """Read lines until one matches; return them and the matched group."""
    seen = []
    for line in stream:
        seen.append(line)
        if found := re.search(pattern, line):
            return seen, found[1]
    raise AssertionError(f"{pattern} was not printed: {seen}")


def test_ui_serves_until_it_is_stopped(sqlite_uri: DeltaSqlUri) -> None:
    with deltasql.connect(sqlite_uri, create=True):
        pass
    command = [sys.executable, "-m", "deltasql.cli.main", "--uri", str(sqlite_uri), "ui"]
    environment = {key: value for key, value in os.environ.items() if key != "DELTASQL_UI_TOKEN"}
    process = subprocess.Popen(
        [*command, "--port", "0", "--allow-writes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stderr is not None
        _, address = lines_until(process.stderr, r"console at (http://127\.0\.0\.1:\d+)")
        _, token = lines_until(process.stderr, r"token: (\S{32,})")
        with httpx.Client(base_url=address, timeout=60) as client:
            assert "No tables yet" in client.get("/").text
            shown = client.get("/login").text
            csrf = shown.split('name="csrf" value="')[1].split('"')[0]
            entered = client.post("/login", data={"csrf": csrf, "token": token})
            assert entered.status_code == 303
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert output == ""  # messages go to stderr
    assert process.returncode == 0


# Like `opentelemetry-instrument`, this sets up the providers before the program starts.
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
from deltasql.cli.main import main

main()
"""


def test_ui_sends_spans_to_opentelemetry(sqlite_uri: DeltaSqlUri) -> None:
    with deltasql.connect(sqlite_uri) as catalog, catalog.begin() as transaction:
        transaction.write("sales", pa.table({"id": [1]}))
    arguments = ["--uri", str(sqlite_uri), "ui", "--port", "0", "--opentelemetry"]
    process = subprocess.Popen(
        [sys.executable, "-c", TRACED, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        _, address = lines_until(process.stderr, r"console at (http://127\.0\.0\.1:\d+)")
        assert httpx.get(f"{address}/tables/sales", timeout=120).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert '"name": "open"' in output


def test_port_in_use_is_an_error(sqlite_uri: DeltaSqlUri) -> None:
    import socket

    deltasql.connect(sqlite_uri, create=True).close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["--uri", str(sqlite_uri), "ui", "--port", port])
    assert result.exit_code == 3
    assert "cannot listen" in result.stderr
    assert "Choose another --port" in result.stderr


def test_console_and_command_line_format_sizes_alike(sqlite_uri: DeltaSqlUri) -> None:
    with deltasql.connect(sqlite_uri, create=True) as catalog:
        deltasql.write_deltalake(f"{sqlite_uri}?table=sales", pa.table({"id": range(5000)}))
        listed = CliRunner().invoke(main, ["--uri", str(sqlite_uri), "stats"]).stdout
        with serving(catalog) as served:
            shown = httpx.get(served.address, timeout=60).text
    (size,) = re.findall(r"\d[\d.]* KiB", listed)
    assert size in shown
