"""The reconciler publishes pending versions, shares tables by leases, backs off and stops."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from deltasql import telemetry
from deltasql.config import Config
from deltasql.mirror.publish.reconcile import PublishedBatch, Reconciler
from deltasql.mirror.publish.status import add_missing_targets, backoff_ms, release
from deltasql.model.clock import now_ms
from deltasql.phases import hooked
from tests.commit.support import file, run, values
from tests.mirror.support import commit_path, open_mirrored, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def quiet(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that does not publish by itself."""
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        yield catalog


def fill(catalog: Catalog, tables: dict[str, int]) -> None:
    """Create tables with this many commits after the first."""
    with catalog.begin() as tx:
        for name in tables:
            tx.create_table(name, SCHEMA)
    for name, count in tables.items():
        for number in range(count):
            with catalog.begin() as tx:
                tx.stage_table(name, [file(str(number))])
    add_missing_targets(catalog.store)


def versions(catalog: Catalog, table: str) -> list[int]:
    place = Path(catalog.table(table).location)
    return published_versions(place) if place.exists() else []


def reconciler(catalog: Catalog, **mirror: Any) -> Reconciler:
    return Reconciler(catalog.store, Config.load(mirror=mirror))


@dataclass
class Steps:
    """The progress that a reconciler reported."""

    steps: list[PublishedBatch] = field(default_factory=list)

    def __call__(self, step: PublishedBatch) -> None:
        self.steps.append(step)

    @property
    def order(self) -> list[tuple[str, int]]:
        return [(step.table.removeprefix("default."), step.version) for step in self.steps]


def test_reconciler_publishes_all_pending_versions(quiet: Catalog) -> None:
    fill(quiet, {"a": 3, "b": 0, "c": 12})
    assert reconciler(quiet).run_once() == 4 + 1 + 13
    assert versions(quiet, "a") == [0, 1, 2, 3]
    assert versions(quiet, "b") == [0]
    assert versions(quiet, "c") == list(range(13))
    assert reconciler(quiet).run_once() == 0
    assert {status.claimed_by for status in quiet.mirror.status()} == {None}


def test_reconciler_gives_every_table_its_turn(quiet: Catalog) -> None:
    fill(quiet, {"big": 9, "small": 1, "middle": 4})
    steps = Steps()
    config = Config.load(mirror={"batch_versions": 4})
    Reconciler(quiet.store, config, on_progress=steps).run_once()
    first_round = steps.order[:3]
    assert sorted(first_round) == [("big", 3), ("middle", 3), ("small", 1)]
    assert steps.order[3:] == [("big", 7), ("middle", 4), ("big", 9)]


def test_failing_table_backs_off_and_does_not_block_others(quiet: Catalog) -> None:
    fill(quiet, {"a": 1, "b": 1})
    place = Path(quiet.table("a").location)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file where a folder should be")
    worker = reconciler(quiet, initial_backoff_s=100, max_backoff_s=1000)
    assert worker.run_once() == 2
    waits = []
    for _ in range(4):
        [status] = quiet.mirror.status("a")
        assert status.state == "FAILED"
        [target] = quiet.mirror.targets("a")
        waits.append((target.next_attempt_ms - now_ms()) / 1000)
        before = target.attempts
        assert worker.run_once() == 0, "not due yet"
        assert quiet.mirror.targets("a")[0].attempts == before
        make_due(quiet)
        worker.run_once()
        assert quiet.mirror.targets("a")[0].attempts == before + 1
    for number, wait_s in enumerate(waits):
        ceiling = min(1000, 100 * 2**number)
        assert ceiling / 2 - 20 <= wait_s <= ceiling
    place.unlink()
    make_due(quiet)
    assert worker.run_once() == 2
    assert quiet.mirror.targets("a")[0].attempts == 0


def make_due(catalog: Catalog) -> None:
    run_sql(catalog, "UPDATE dl_mirror_targets SET next_attempt_ms = 0")


def run_sql(catalog: Catalog, text: str) -> None:
    with catalog.store.relaxed() as session:
        session.script(text)


def test_backoff_doubles_up_to_a_limit_with_jitter() -> None:
    settings = Config.load(mirror={"initial_backoff_s": 1, "max_backoff_s": 10}).mirror
    for attempts, ceiling in enumerate((1, 2, 4, 8, 10, 10)):
        drawn = [backoff_ms(settings, attempts) for _ in range(50)]
        assert 500 * ceiling <= min(drawn) <= max(drawn) <= 1000 * ceiling
        assert len(set(drawn)) > 10
    assert backoff_ms(settings, 10_000) <= 10_000


def test_claimed_target_belongs_to_its_owner_until_the_lease_expires(quiet: Catalog) -> None:
    fill(quiet, {"a": 2})
    first, second = reconciler(quiet, lease_s=3600), reconciler(quiet)
    [claimed] = first._claim()
    assert claimed.claimed_by == first.name
    assert second._claim() == []
    assert second.run_once() == 0
    [status] = quiet.mirror.status("a")
    assert status.claimed_by == first.name
    assert quiet.mirror.versions("a")[-1].status == "IN_FLIGHT"
    # The owner dies, and its lease expires.
    run_sql(quiet, f"UPDATE dl_mirror_targets SET claimed_until_ms = {now_ms() - 1}")
    assert second.run_once() == 3
    assert versions(quiet, "a") == [0, 1, 2]


def test_two_reconcilers_share_the_tables(quiet: Catalog) -> None:
    fill(quiet, {f"t{number:02}": 1 for number in range(20)})
    first, second = reconciler(quiet), reconciler(quiet)
    mine, theirs = first._claim(), second._claim()
    assert mine
    assert theirs
    both = [target.table.name for target in mine + theirs]
    assert len(both) == len(set(both))
    for worker, claimed in ((first, mine), (second, theirs)):
        worker._release(claimed, [])
    assert first.run_once() + second.run_once() == 40


@pytest.mark.every_database
def test_threads_of_reconcilers_publish_each_version_once(quiet: Catalog) -> None:
    fill(quiet, {f"t{number}": 6 for number in range(8)})
    barrier = threading.Barrier(3)
    published: list[int] = []

    def work() -> None:
        worker = reconciler(quiet, batch_versions=2)
        barrier.wait()
        published.append(worker.run_once())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(published) == 8 * 7
    assert all(status.pending == 0 for status in quiet.mirror.status())


def test_two_reconcilers_on_one_table_leave_a_correct_log(quiet: Catalog) -> None:
    """A lease may expire under a slow reconciler; identical commit files keep the log correct."""
    fill(quiet, {"a": 5})
    slow, fast = reconciler(quiet), reconciler(quiet)
    [target] = slow._claim()
    run_sql(quiet, f"UPDATE dl_mirror_targets SET claimed_until_ms = {now_ms() - 1}")
    assert fast.run_once() == 6
    with quiet.begin() as tx:
        tx.stage_table("a", [file("late")])
    assert fast.run_once() == 1
    slow._work([target], [target], threading.Event(), set())
    [status] = quiet.mirror.status("a")
    assert (status.published_version, status.state) == (6, "ACTIVE")
    assert versions(quiet, "a") == list(range(7))


def test_stop_finishes_the_current_version(quiet: Catalog) -> None:
    fill(quiet, {"a": 20})
    stop = threading.Event()
    seen: list[str] = []

    def hook(phase: str) -> None:
        seen.append(phase)
        if seen.count("publishing") == 3:
            stop.set()

    with hooked(hook):
        assert reconciler(quiet).run_once(stop) == 3
    assert versions(quiet, "a") == [0, 1, 2]
    [status] = quiet.mirror.status("a")
    assert (status.published_version, status.claimed_by) == (2, None)
    assert reconciler(quiet).run_once() == 18


def test_reconciler_runs_until_stopped(quiet: Catalog) -> None:
    fill(quiet, {"a": 1})
    stop, done = threading.Event(), threading.Event()
    steps: list[PublishedBatch] = []

    def progress(step: PublishedBatch) -> None:
        steps.append(step)
        if sum(each.published for each in steps) == 4:
            done.set()

    thread = threading.Thread(
        target=lambda: quiet.mirror.run(stop, on_progress=progress), daemon=True
    )
    thread.start()
    for number in range(2):
        with quiet.begin() as tx:
            tx.stage_table("a", [file(f"later{number}")])
    assert done.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert versions(quiet, "a") == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_sigterm_ends_a_reconciler_cleanly(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with open_mirrored(catalog_uri, folder, mirror={"mode": "off"}) as catalog:
        fill(catalog, {"a": 30})
        [ended] = values(run(reconcile_until_sigterm, [(catalog_uri, folder)]))
        assert ended == 5
        assert versions(catalog, "a") == [0, 1, 2, 3, 4]
        [status] = catalog.mirror.status("a")
        assert (status.published_version, status.claimed_by) == (4, None)
        assert catalog.mirror.run(once=True) == 26


def reconcile_until_sigterm(_: Any, uri: DeltaSqlUri, folder: Path) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    seen: list[str] = []

    def hook(phase: str) -> None:
        seen.append(phase)
        if phase == "publishing" and seen.count(phase) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    with open_mirrored(uri, folder, mirror={"mode": "off"}) as catalog, hooked(hook):
        return catalog.mirror.run(stop)


def test_lag_is_reported_as_metric_and_alert(
    quiet: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(quiet, {"a": 1})
    commit_path(quiet.table("a").location, 0).parent.mkdir(parents=True)
    commit_path(quiet.table("a").location, 0).write_text("other bytes\n")
    registry = telemetry.enable_prometheus(CollectorRegistry())
    try:
        worker = reconciler(quiet, alert_lag_s=0.000001)
        with caplog.at_level(logging.INFO, logger="deltasql"):
            worker.run_once()
            worker.run_once()
        label = {"table": "a"}
        assert registry.get_sample_value("mirror_lag_seconds", label) > 0
        assert registry.get_sample_value("mirror_failures_total", label) == 1
        alerts = [r for r in caplog.records if r.__dict__.get("event") == "mirror is unhealthy"]
        assert len(alerts) == 1, "reported once, not at every check"
        assert alerts[0].levelno == logging.WARNING
        commit_path(quiet.table("a").location, 0).unlink()
        release(quiet.store, quiet.resolve("a"))
        with caplog.at_level(logging.INFO, logger="deltasql"):
            assert worker.run_once() == 2
        assert "mirror is healthy again" in caplog.text
        assert registry.get_sample_value("mirror_lag_seconds", label) == 0
    finally:
        telemetry.disable()


def test_publishing_many_versions_takes_a_fixed_number_of_statements(quiet: Catalog) -> None:
    """Publishing many versions must not query SQL for each of them."""
    fill(quiet, {"a": 40})
    statements: list[str] = []
    real = quiet.store.dialect.session

    class Counting:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._session, name)
            if name not in ("query", "execute"):
                return found

            def counted(statement: str, /, **params: Any) -> Any:
                statements.append(statement)
                return found(statement, **params)

            return counted

    @contextmanager
    def counted_session() -> Iterator[Any]:
        with real() as session:
            yield Counting(session)

    quiet.store.dialect.session = counted_session  # type: ignore[method-assign, assignment]
    assert reconciler(quiet).run_once() == 41
    per_span = [name for name in statements if name.endswith("_between")]
    assert len(per_span) == len(set(per_span))
    # The checksum of the first version reads the history once.
    assert statements.count("history") <= 2
    assert statements.count("complete_versions") + statements.count("record_published") == 1
