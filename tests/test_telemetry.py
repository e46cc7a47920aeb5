"""Telemetry: structured logs, Prometheus, OpenTelemetry, and no cost when off."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, get_args

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from deltasql import telemetry
from deltasql.exceptions import VersionTakenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    telemetry.disable()
    yield
    telemetry.disable()


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Yield the JSON output of the logger `deltasql.test`."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(telemetry.JsonFormatter())
    logger = logging.getLogger("deltasql.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield text
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


LOGGER = logging.getLogger("deltasql.test")


def test_event_is_one_json_line_with_its_fields(stream: io.StringIO) -> None:
    telemetry.log(LOGGER, logging.INFO, "commit", table="Größe", version=3, blind=True, note=None)
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert line["time"].endswith("Z")
    assert {key: line[key] for key in line if key != "time"} == {
        "level": "INFO",
        "logger": "deltasql.test",
        "event": "commit",
        "table": "Größe",
        "version": 3,
        "blind": True,
        "note": None,
    }


def test_event_in_plain_text_shows_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "deltasql.test"):
        telemetry.log(LOGGER, logging.INFO, "commit", table="sales", version=3)
    record = caplog.records[0]
    assert record.getMessage() == "commit table=sales version=3"
    assert record.filename == Path(__file__).name


def test_fields_cannot_replace_level_or_time(stream: io.StringIO) -> None:
    telemetry.log(LOGGER, logging.INFO, "commit", time="never", lines=[1, 2])
    line = json.loads(stream.getvalue())
    assert line["time"] != "never"
    assert line["lines"] == "[1, 2]"


def test_logs_hide_secrets(stream: io.StringIO) -> None:
    telemetry.log(
        LOGGER,
        logging.WARNING,
        "open password=hunter2",
        uri="deltasql://postgres/ann:hunter2@db/lake",
        aws_secret_access_key="hunter2",
        options={"token": "hunter2"},
    )
    try:
        raise ValueError("postgresql://ann:hunter2@db")
    except ValueError:
        LOGGER.exception("lost postgresql://ann:%s@db", "hunter2")
    assert "hunter2" not in stream.getvalue()
    assert "ValueError" in json.loads(stream.getvalue().splitlines()[1])["exception"]


def test_disabled_level_formats_nothing() -> None:
    class FailingText:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    telemetry.log(LOGGER, logging.DEBUG, "commit", value=FailingText())


def use_everything() -> None:
    with (
        telemetry.span("commit", table="sales", password="hunter2") as span,
        telemetry.timed("commit_latency_ms", backend="sqlite"),
    ):
        span.set(version=3)
        telemetry.count("versions_committed_total", table="sales")
        telemetry.count("commit_conflicts_total", 2, kind="ConcurrentAppendError")
        telemetry.observe("mirror_latency_ms", 4.0)
        telemetry.gauge("pool_connections", 5, state="idle")
        telemetry.gauge("files_active", 7, table="sales")


def test_prometheus_shows_every_metric() -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    use_everything()
    text = generate_latest(registry).decode()
    for line in (
        'versions_committed_total{table="sales"} 1.0',
        'commit_conflicts_total{kind="ConcurrentAppendError"} 2.0',
        'commit_latency_ms_count{backend="sqlite"} 1.0',
        'mirror_latency_ms_bucket{le="5.0"} 1.0',
        'mirror_latency_ms_bucket{le="2.5"} 0.0',
        "mirror_latency_ms_sum 4.0",
        'pool_connections{state="idle"} 5.0',
        'files_active{table="sales"} 7.0',
    ):
        assert line in text.splitlines()
    for name, metric in telemetry.METRICS.items():
        assert f"# HELP {name} {metric.doc}" in text


def test_enabling_prometheus_twice_counts_once() -> None:
    registry = CollectorRegistry()
    assert telemetry.enable_prometheus(registry) is registry
    telemetry.enable_prometheus(registry)
    telemetry.count("versions_committed_total", table="sales")
    assert registry.get_sample_value("versions_committed_total", {"table": "sales"}) == 1
    telemetry.disable()
    telemetry.enable_prometheus(registry)
    assert telemetry.is_enabled()


def test_failed_block_is_timed() -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    with pytest.raises(KeyError), telemetry.timed("mirror_latency_ms"):
        raise KeyError
    assert registry.get_sample_value("mirror_latency_ms_count") == 1


def opentelemetry() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.enable_opentelemetry(MeterProvider([reader]), tracers)
    return spans, reader


def test_opentelemetry_receives_nested_spans_with_attributes() -> None:
    spans, _ = opentelemetry()
    with telemetry.span("commit", table="sales", secret="hunter2") as outer:
        with telemetry.span("publish"):
            pass
        outer.set(version=3)
    publish, commit = spans.get_finished_spans()
    assert commit.attributes == {"table": "sales", "secret": "***", "version": 3}
    assert publish.parent is not None
    assert publish.parent.span_id == commit.context.span_id


def test_span_records_the_error_without_secrets() -> None:
    spans, _ = opentelemetry()
    with pytest.raises(ValueError), telemetry.span("open"):
        raise ValueError("postgresql://ann:hunter2@db")
    with pytest.raises(VersionTakenError), telemetry.span("commit"):
        raise VersionTakenError(table="sales")
    opened, commit = spans.get_finished_spans()
    assert not opened.status.is_ok
    assert commit.status.description == "VersionTakenError"
    assert "hunter2" not in opened.to_json()
    assert "ann:***@db" in opened.to_json()


def test_opentelemetry_receives_the_metrics() -> None:
    _, reader = opentelemetry()
    use_everything()
    data = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
    metrics = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    found = {each["name"]: each for each in metrics}
    assert found["commit_conflicts_total"]["data"]["data_points"][0]["value"] == 2
    assert found["mirror_latency_ms"]["data"]["data_points"][0]["sum"] == 4.0
    assert found["mirror_latency_ms"]["unit"] == "ms"
    assert found["files_active"]["data"]["data_points"][0]["attributes"] == {"table": "sales"}


def test_both_exporters_work_side_by_side() -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    spans, _ = opentelemetry()
    use_everything()
    assert registry.get_sample_value("mirror_latency_ms_count") == 1
    assert [span.name for span in spans.get_finished_spans()] == ["commit"]


def timing(work: Callable[[], None], times: int) -> float:
    """Return the median seconds of one call, over batches."""
    batches = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(times):
            work()
        batches.append((time.perf_counter() - start) / times)
    return median(batches)


def test_disabled_telemetry_takes_less_time_than_a_commit(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "floor.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x INTEGER)")
    # Without a disk flush this is the cheapest possible commit.
    connection.execute("PRAGMA synchronous = OFF")

    def commit() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("COMMIT")

    floor = timing(commit, 300)
    connection.close()
    assert timing(use_everything, 300) < floor


def test_disabled_telemetry_keeps_no_memory() -> None:
    use_everything()
    grown = []
    tracemalloc.start()
    try:
        for _ in range(3):  # other threads also allocate memory
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(2000):
                use_everything()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert min(grown) < 2000
    assert telemetry.span("a") is telemetry.span("b") is telemetry.timed("mirror_latency_ms")


def test_literal_types_list_exactly_the_metrics() -> None:
    kinds = {
        "counter": telemetry.CounterName,
        "histogram": telemetry.HistogramName,
        "gauge": telemetry.GaugeName,
    }
    for kind, names in kinds.items():
        declared = {name for name, metric in telemetry.METRICS.items() if metric.kind == kind}
        assert declared == set(get_args(names))


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("prometheus_client", "enable_prometheus()"),
        ("opentelemetry", "enable_opentelemetry()"),
    ],
)
def test_missing_package_error_gives_the_install_command(package: str, call: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from deltasql import telemetry\n"
        "from deltasql.exceptions import MissingDriverError\n"
        f"try: telemetry.{call}\n"
        "except MissingDriverError as error: print(error.help)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Run: pip install 'deltasql[console]'"


def test_exporters_are_imported_only_when_enabled() -> None:
    code = "import deltasql.telemetry, sys\n"
    code += "print({'prometheus_client', 'opentelemetry'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_forget_removes_a_gauge_and_ignores_unknown_gauges() -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    for table in ("a", "b"):
        telemetry.gauge("files_active", 3, table=table)
    telemetry.forget("files_active", table="a")
    telemetry.forget("files_active", table="never")
    assert registry.get_sample_value("files_active", {"table": "a"}) is None
    assert registry.get_sample_value("files_active", {"table": "b"}) == 3
