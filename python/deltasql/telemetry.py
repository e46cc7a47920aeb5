"""Logging, metrics and tracing.

Logs go to the standard `logging` module under the logger `deltasql`; `JsonFormatter` writes them
as JSON. Metrics and spans are exported after `enable_prometheus()` or `enable_opentelemetry()`.
Both are disabled by default; a call then takes a fraction of a microsecond.

>>> log(logging.getLogger("deltasql.doc"), logging.INFO, "commit", table="sales", version=3)
>>> with span("commit", table="sales"), timed("commit_latency_ms"):
...     count("versions_committed_total", table="sales")
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from deltasql.exceptions import MASK, MissingDriverError, is_secret_name, redact

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from prometheus_client import CollectorRegistry

__all__ = [
    "METRICS",
    "JsonFormatter",
    "Metric",
    "count",
    "disable",
    "enable_opentelemetry",
    "enable_prometheus",
    "forget",
    "gauge",
    "is_enabled",
    "log",
    "observe",
    "span",
    "timed",
]

CounterName = Literal[
    "mirror_failures_total",
    "versions_committed_total",
    "commit_conflicts_total",
    "commit_retries_total",
    "auto_compactions_total",
]
HistogramName = Literal["metadata_open_latency_ms", "commit_latency_ms", "mirror_latency_ms"]
TableGauge = Literal["mirror_lag_seconds", "files_active"]
GaugeName = Literal[TableGauge, "pool_connections"]

_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that deltasql exports: its kind, description and labels."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    doc: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    each.name: each
    for each in (
        Metric(
            "metadata_open_latency_ms", "histogram", "Time to open a table or store", ("backend",)
        ),
        Metric("commit_latency_ms", "histogram", "Time from staged to ratified", ("backend",)),
        Metric("mirror_latency_ms", "histogram", "Publishing one version to _delta_log"),
        Metric("mirror_lag_seconds", "gauge", "Age of the oldest unpublished version", ("table",)),
        Metric(
            "mirror_failures_total",
            "counter",
            "Versions not published because of an error",
            ("table",),
        ),
        Metric("versions_committed_total", "counter", "Ratified versions", ("table",)),
        Metric("files_active", "gauge", "Live files of a table", ("table",)),
        Metric(
            "commit_conflicts_total", "counter", "Commits that failed with a conflict", ("kind",)
        ),
        Metric("commit_retries_total", "counter", "Repeated commit attempts", ("kind",)),
        Metric(
            "auto_compactions_total",
            "counter",
            "Auto compactions of a table by outcome: committed, conflict, yielded or failed",
            ("table", "outcome"),
        ),
        Metric("pool_connections", "gauge", "Connections of the pool by state", ("state",)),
    )
}


class Exporter(Protocol):
    """A destination for metrics and spans."""

    def record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        """Add to a counter, observe a histogram or set a gauge."""

    def forget(self, metric: Metric, labels: dict[str, str]) -> None:
        """Stop exporting a gauge."""

    def tracer(self) -> Tracer | None:
        """Return the tracer that starts spans; None if this exporter has no spans."""


_exporters: tuple[Exporter, ...] = ()
_tracer: Tracer | None = None
_lock = threading.Lock()

# A library logs nothing until the application configures logging.
logging.getLogger("deltasql").addHandler(logging.NullHandler())


def log(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log one event with its fields; mask secrets, which are found by field name and by format."""
    if not logger.isEnabledFor(level):
        return
    safe = {name: _safe(name, value) for name, value in fields.items()}
    text = " ".join([event, *(f"{name}={value}" for name, value in safe.items())])
    logger.log(level, "%s", text, extra={"event": event, "fields": safe}, stacklevel=2)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, event and the event's fields.

    >>> record = logging.LogRecord("deltasql", logging.INFO, "", 0, "password=x", None, None)
    >>> json.loads(JsonFormatter().format(record))["event"]
    'password=***'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line: dict[str, Any] = {
            "time": f"{_utc(record.created)}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "event": redact(str(getattr(record, "event", None) or record.getMessage())),
        }
        for name, value in getattr(record, "fields", {}).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


def count(name: CounterName, amount: float = 1, **labels: str) -> None:
    """Add to a counter."""
    if _exporters:
        _record(name, amount, labels)


def observe(name: HistogramName, value: float, **labels: str) -> None:
    """Add one observation to a histogram."""
    if _exporters:
        _record(name, value, labels)


def gauge(name: GaugeName, value: float, **labels: str) -> None:
    """Set a gauge."""
    if _exporters:
        _record(name, value, labels)


def forget(name: GaugeName, **labels: str) -> None:
    """Stop exporting a gauge, for example of a dropped table."""
    if _exporters:
        metric = METRICS[name]
        safe = _labels(metric, labels)
        for exporter in _exporters:
            exporter.forget(metric, safe)


def timed(name: HistogramName, **labels: str) -> AbstractContextManager[object]:
    """Observe the duration of the block in milliseconds, even if the block fails."""
    return _Timer(name, labels) if _exporters else _OFF


def span(name: str, **attributes: object) -> AbstractContextManager[_NoSpan]:
    """Trace the block; `set(...)` of the yielded object adds attributes to the span."""
    return _LiveSpan(_tracer, name, attributes) if _tracer is not None else _OFF


def is_enabled() -> bool:
    """Return whether metrics are exported; check it before computing an expensive metric."""
    return bool(_exporters)


def enable_prometheus(registry: CollectorRegistry | None = None) -> CollectorRegistry:
    """Export metrics to a Prometheus registry; by default to the global one."""
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingDriverError(driver="prometheus-client", extra="console") from error
    target = prometheus_client.REGISTRY if registry is None else registry
    with _lock:
        known = [each for each in _exporters if isinstance(each, _Prometheus)]
        # A registry rejects a second metric with the same name.
        if all(each.registry is not target for each in known):
            _install(*_exporters, _Prometheus(target))
    return target


def enable_opentelemetry(
    meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
) -> None:
    """Export metrics and spans to OpenTelemetry; by default to the global providers."""
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MissingDriverError(driver="opentelemetry-api", extra="console") from error
    meter = metrics.get_meter("deltasql", meter_provider=meter_provider)
    tracer = trace.get_tracer("deltasql", tracer_provider=tracer_provider)
    with _lock:
        others = [each for each in _exporters if not isinstance(each, _OpenTelemetry)]
        _install(*others, _OpenTelemetry(meter, tracer))


def disable() -> None:
    """Stop exporting metrics and spans."""
    with _lock:
        for each in _exporters:
            if isinstance(each, _Prometheus):
                each.unregister()
        _install()


class _NoSpan:
    """The object that `span` yields if tracing is disabled."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def set(self, **attributes: object) -> None:
        """Add attributes to the span."""


_OFF = _NoSpan()


class _LiveSpan(_NoSpan):
    __slots__ = ("_manager", "_span")

    def __init__(self, tracer: Tracer, name: str, attributes: dict[str, object]) -> None:
        safe = {key: _attribute(key, value) for key, value in attributes.items()}
        # The SDK would copy the message of a driver, which may contain secrets, into the span.
        self._manager = tracer.start_as_current_span(
            name, attributes=safe, record_exception=False, set_status_on_exception=False
        )
        self._span: Span | None = None

    def __enter__(self) -> Self:
        self._span = self._manager.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._span is not None:
            from opentelemetry.trace import StatusCode

            attributes = {
                "exception.type": type(error).__name__,
                "exception.message": redact(str(error)),
            }
            self._span.add_event("exception", attributes)
            self._span.set_status(StatusCode.ERROR, type(error).__name__)
        self._manager.__exit__(kind, error, trace)

    def set(self, **attributes: object) -> None:
        for key, value in attributes.items():
            if self._span is not None:
                self._span.set_attribute(key, _attribute(key, value))


class _Timer:
    __slots__ = ("_labels", "_name", "_start")

    def __init__(self, name: HistogramName, labels: dict[str, str]) -> None:
        self._name, self._labels = name, labels

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        _record(self._name, (time.perf_counter() - self._start) * 1000, self._labels)


class _Prometheus:
    def __init__(self, registry: CollectorRegistry) -> None:
        import prometheus_client as prometheus

        self.registry = registry
        self._metrics: dict[str, Any] = {}
        for name, metric in METRICS.items():
            if metric.kind == "histogram":
                self._metrics[name] = prometheus.Histogram(
                    name, metric.doc, metric.labels, registry=registry, buckets=_BUCKETS_MS
                )
            else:
                kind = prometheus.Counter if metric.kind == "counter" else prometheus.Gauge
                self._metrics[name] = kind(name, metric.doc, metric.labels, registry=registry)

    def record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        family = self._metrics[metric.name]
        series = family.labels(*labels.values()) if labels else family
        if metric.kind == "counter":
            series.inc(value)
        elif metric.kind == "histogram":
            series.observe(value)
        else:
            series.set(value)

    def forget(self, metric: Metric, labels: dict[str, str]) -> None:
        # A gauge that was never set does not exist.
        with suppress(KeyError):
            self._metrics[metric.name].remove(*labels.values())

    def tracer(self) -> Tracer | None:
        return None

    def unregister(self) -> None:
        for family in self._metrics.values():
            self.registry.unregister(family)


class _OpenTelemetry:
    def __init__(self, meter: Any, tracer: Tracer) -> None:
        self._tracer = tracer
        makers = {
            "counter": meter.create_counter,
            "histogram": meter.create_histogram,
            "gauge": meter.create_gauge,
        }
        self._instruments = {
            name: makers[metric.kind](name, unit=_unit(name), description=metric.doc)
            for name, metric in METRICS.items()
        }

    def record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        instrument = self._instruments[metric.name]
        write = {"counter": "add", "histogram": "record", "gauge": "set"}[metric.kind]
        getattr(instrument, write)(value, labels)

    def forget(self, metric: Metric, labels: dict[str, str]) -> None:
        """Do nothing: OpenTelemetry exports only gauges that were set since the last export."""

    def tracer(self) -> Tracer | None:
        return self._tracer


def _install(*exporters: Exporter) -> None:
    global _exporters, _tracer
    _exporters = exporters
    _tracer = next((found for each in exporters if (found := each.tracer())), None)


def _record(name: str, value: float, labels: dict[str, str]) -> None:
    metric = METRICS[name]
    safe = _labels(metric, labels)
    for exporter in _exporters:
        exporter.record(metric, value, safe)


def _labels(metric: Metric, given: dict[str, str]) -> dict[str, str]:
    return {label: redact(str(given.get(label, ""))) for label in metric.labels}


def _safe(name: str, value: object) -> object:
    if is_secret_name(name):
        return MASK
    if isinstance(value, int | float | bool | None):
        return value
    return redact(str(value))


def _attribute(name: str, value: object) -> str | int | float | bool:
    safe = _safe(name, value)
    return safe if isinstance(safe, str | int | float | bool) else str(safe)


def _unit(name: str) -> str:
    return "ms" if name.endswith("_ms") else "s" if name.endswith("_seconds") else "1"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
