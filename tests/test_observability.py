"""Metrics and spans of real operations, and the dashboard and alerts that use them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import deltasql
from deltasql import telemetry
from deltasql.exceptions import CommitConflictError, StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

FOLDER = Path(__file__).parents[1] / "docs" / "observability"
ROWS = pa.table({"id": [1, 2, 3]})
# Words in PromQL expressions that are not metrics.
_OTHER = frozenset(
    {"sum", "max", "by", "rate", "increase", "histogram_quantile", "le", "table", "kind", "state"}
    | {"backend", "instance", "outcome", "label_values", "m", "lent", "__rate_interval"}
)


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    telemetry.disable()
    yield
    telemetry.disable()


def work(uri: DeltaSqlUri, lake: Path) -> None:
    """Create, write, cause a conflict, read, publish and checkpoint."""
    with deltasql.connect(uri, table={"data_root": str(lake)}) as catalog:
        catalog.create_table("sales", ROWS.schema)
        with catalog.begin() as transaction:
            transaction.write("sales", ROWS)
        first, second = catalog.begin(), catalog.begin()
        for each in (first, second):
            each.delete("sales", "id = 2")
        first.commit()
        with pytest.raises(CommitConflictError):
            second.commit()
        assert len(catalog.table("sales").scan("id = 1").arrow) == 1
        catalog.table("sales").describe()
        catalog.mirror.status()
        catalog.mirror.checkpoint("sales")


def test_operations_update_the_metrics(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    work(catalog_uri, tmp_path / "lake")
    text = generate_latest(registry).decode()
    value = registry.get_sample_value
    table, backend = {"table": "sales"}, {"backend": catalog_uri.backend}
    assert value("versions_committed_total", table) == 3
    assert value("files_active", table) == 1
    assert value("mirror_lag_seconds", table) == 0
    assert (value("commit_latency_ms_count", backend) or 0) >= 4
    assert (value("metadata_open_latency_ms_count", backend) or 0) > 0
    assert (value("mirror_latency_ms_count") or 0) > 0
    assert re.search(r'commit_conflicts_total\{kind="Concurrent\w+Error"\} 1\.0', text)
    assert value("pool_connections", {"state": "max"}) is not None


def test_metrics_of_dropped_and_renamed_tables_are_removed(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())

    def tables_in(name: str) -> set[str]:
        samples = [each for family in registry.collect() for each in family.samples]
        return {each.labels["table"] for each in samples if each.name == name}

    with (
        deltasql.connect(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as catalog,
        deltasql.connect(
            f"deltasql://sqlite/{tmp_path}/other.db", table={"data_root": str(tmp_path / "more")}
        ) as other,
    ):
        other.create_table("elsewhere", ROWS.schema)
        other.mirror.status()
        for name in ("kept", "dropped", "renamed"):
            catalog.create_table(name, ROWS.schema)
        catalog.mirror.status()
        catalog.inspect.update_file_metrics()
        assert tables_in("files_active") == {"kept", "dropped", "renamed"}
        catalog.drop("dropped")
        catalog.rename("renamed", "new")
        for look in (catalog.mirror.status, lambda: catalog.mirror.run(once=True)):
            look()
            catalog.inspect.update_file_metrics()
            assert tables_in("files_active") == {"kept", "new"}
            expected = {"kept", "new", "elsewhere"}
            assert tables_in("mirror_lag_seconds") == expected


def test_retries_and_failures_are_counted_by_kind(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    with deltasql.connect(
        postgres_uri,
        table={"data_root": str(tmp_path / "lake")},
        store={"lock_timeout_ms": 20},
        retry={"max_attempts": 3, "initial_backoff_ms": 1, "max_backoff_ms": 1},
    ) as catalog:
        made = catalog.create_table("sales", ROWS.schema)
        with psycopg.connect(os.environ["TEST_DATABASE_URL"]) as blocker:
            blocker.execute(f"SELECT FROM {postgres_uri.search_path}.dl_table_heads FOR UPDATE")
            with pytest.raises(StoreBusyError), catalog.begin() as transaction:
                transaction.write("sales", ROWS)
        log = Path(made.location) / "_delta_log"
        log.rename(log.with_name("aside"))
        log.write_text("not a folder")
        with catalog.begin() as transaction:
            transaction.write("sales", ROWS)
    assert (registry.get_sample_value("commit_retries_total", {"kind": "busy"}) or 0) >= 2
    failed = registry.get_sample_value("mirror_failures_total", {"table": "sales"})
    assert (failed or 0) >= 1


def test_commit_records_spans_for_each_step(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.enable_opentelemetry(tracer_provider=tracers)
    work(catalog_uri, tmp_path / "lake")
    found = spans.get_finished_spans()
    assert {"open", "plan", "write", "commit", "publish"} <= {span.name for span in found}
    written = [span for span in found if span.name == "write"]
    assert all("sales" in str((span.attributes or {})["location"]) for span in written)
    # The span of the commit that failed has the error.
    lost = [span for span in found if span.name == "commit" and not span.status.is_ok]
    assert [span for span in lost if "Concurrent" in str(span.status.description)]


def test_reconciler_serves_prometheus_metrics(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "off"}, table={"data_root": str(tmp_path / "lake")}
    ) as catalog:
        catalog.create_table("sales", ROWS.schema)
    command = [sys.executable, "-m", "deltasql.cli.main", "--uri", sqlite_uri.to_string()]
    with subprocess.Popen(
        [*command, "mirror", "run", "--metrics-port", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address is not None
            text = ""
            while 'mirror_lag_seconds{table="sales"} 0.0' not in text:
                assert process.poll() is None
                with urllib.request.urlopen(address[0], timeout=60) as response:
                    text = response.read().decode()
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
    assert process.returncode == 0
    assert 'pool_connections{state="max"}' in text
    assert all(f"# HELP {name}" in text for name in telemetry.METRICS)


def metrics_in(expression: str) -> set[str]:
    """Return the metrics in a PromQL expression."""
    bare = re.sub(r'"[^"]*"', "", expression)
    words = set(re.findall(r"[a-z_][a-z_0-9]*", bare)) - _OTHER
    return {re.sub(r"_(bucket|count|sum)$", "", word) for word in words}


def test_dashboard_uses_exactly_the_existing_metrics() -> None:
    board = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
    named = {
        metric
        for panel in board["panels"]
        for target in panel["targets"]
        for metric in metrics_in(target["expr"])
    }
    assert named == {*telemetry.METRICS}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for variable in board["templating"]["list"]:
        assert metrics_in(variable["query"]) <= {*telemetry.METRICS, "prometheus"}


def test_alerts_use_existing_metrics_and_are_documented() -> None:
    guide = (FOLDER.parent / "guides" / "observability.md").read_text("utf-8")
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]:
        assert metrics_in(rule["expr"]) <= {*telemetry.METRICS}
        assert metrics_in(rule["expr"])
        assert {"summary", "description"} <= {*rule["annotations"]}
        assert f"`{rule['alert']}`" in guide


def test_labels_in_expressions_exist() -> None:
    text = (FOLDER / "alerts.yaml").read_text() + (FOLDER / "grafana-dashboard.json").read_text()
    for name, label in re.findall(r"(\w+)\{(\w+)[=~]", text):
        if name in telemetry.METRICS:
            assert label in telemetry.METRICS[name].labels
