"""Metrics and spans of the commit path, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from deltasql import ReadSet, telemetry
from deltasql.exceptions import ConcurrentAppendError
from tests.conftest import add_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog

pytestmark = pytest.mark.two_databases


@pytest.fixture(autouse=True)
def _disable_afterwards() -> Iterator[None]:
    yield
    telemetry.disable()


def test_commits_conflicts_and_snapshot_loads_are_counted(catalog: Catalog) -> None:
    registry = telemetry.enable_prometheus(CollectorRegistry())
    catalog.create_table("t", pa.schema([("id", pa.int64())]))
    for number in range(3):
        with catalog.begin() as tx:
            tx.stage_table("t", [add_file(f"f{number}")], operation="MERGE", reads=ReadSet(True))
    tx = catalog.begin()
    tx.stage_table("t", [add_file("late")], read_version=1, reads=ReadSet(whole_table=True))
    with pytest.raises(ConcurrentAppendError):
        tx.commit()
    catalog.table("t").snapshot().totals()
    catalog.health()
    text = generate_latest(registry).decode()
    assert 'versions_committed_total{table="t"} 4.0' in text
    assert 'commit_conflicts_total{kind="ConcurrentAppendError"} 1.0' in text
    assert 'files_active{table="t"} 3.0' in text
    assert f'commit_latency_ms_count{{backend="{catalog.store.dialect.name}"}} 5.0' in text
    assert "metadata_open_latency_ms_count" in text
    assert 'pool_connections{state="idle"}' in text


def test_commit_records_spans(catalog: Catalog) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.enable_opentelemetry(tracer_provider=provider)
    catalog.create_table("t", pa.schema([("id", pa.int64())]))
    assert len(catalog.table("t").scan("id > 1")) == 0
    assert {span.name for span in exporter.get_finished_spans()} >= {"commit", "open", "plan"}
