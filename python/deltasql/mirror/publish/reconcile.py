"""The reconciler publishes commits that other processes ratified but did not publish.

In each round it finds targets that are behind their table, takes leases on a few of them, publishes
a batch of versions for each, and releases the leases. So several reconcilers can share the work,
and no table waits until another is finished. A lease only avoids double work. Two publishers of one
table are safe, because commit files have canonical content and are written with put-if-absent.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql import telemetry
from deltasql.mirror.publish.publisher import Publisher
from deltasql.mirror.publish.status import MirrorStatus, add_missing_targets, status_of
from deltasql.mirror.publish.stop_signal import StopAtDeadline
from deltasql.mirror.publish.targets import PublishTarget, all_targets
from deltasql.model.clock import now_ms
from deltasql.model.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.config import Config
    from deltasql.mirror.publish.stop_signal import StopSignal
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
_TARGETS_PER_CLAIM = 8
_REPORT_S = 1.0
# No setting allows a longer lease or backoff. If a lease or a backoff ends even later, the clock of
# the process that wrote it was ahead.
_LONGEST_LEASE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class PublishedBatch(Progress):
    """The progress of a table after a batch of its versions was published to one target."""

    target: str = ""
    published: int = 0
    error: str | None = None

    @property
    def version(self) -> int:
        """The latest published version."""
        return self.done - 1

    @property
    def pending(self) -> int:
        """The number of versions that are not published yet."""
        return self.total - self.done


class Reconciler:
    """Publishes the unpublished versions of all tables of a catalog, to every target."""

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        name: str | None = None,
        on_progress: Callable[[PublishedBatch], None] | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        # The name must be unique, because two reconcilers with the same name would release each
        # other's leases.
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._store, self._config, self._on_progress = store, config, on_progress
        self._publisher = publisher or Publisher(store, config)
        self._unhealthy: set[tuple[str, str]] = set()
        self._reported_s = 0.0

    def run(self, stop: threading.Event) -> int:
        """Publish until `stop` is set; return how many versions were published."""
        # Creating the first array makes pyarrow import pandas. Do this at the start, so that it
        # does not delay the first checkpoint.
        pa.array([0])
        wait_s = self._config.mirror.poll_s
        total = 0
        while not stop.is_set():
            try:
                published = self.run_once(stop)
                wait_s = self._config.mirror.poll_s
            except self._publisher.failures as error:
                # The database may be down, so retry with backoff.
                published = 0
                wait_s = min(2 * wait_s, self._config.mirror.max_backoff_s)
                telemetry.log(_log, logging.WARNING, "reconciling failed", error=str(error))
            total += published
            if not published:
                stop.wait(wait_s)
        return total

    def run_once(self, stop: StopSignal | None = None) -> int:
        """Publish until nothing is due; return how many versions were published."""
        stop = stop or threading.Event()
        failed: set[tuple[int, str]] = set()
        published = 0
        add_missing_targets(self._store)
        while not stop.is_set():
            targets = self._claim()
            # Skip targets that failed in this call: if their backoff is zero, they are due again
            # immediately.
            fresh = [t for t in targets if (t.table.table_id, t.name) not in failed]
            published += self._work(targets, fresh, stop, failed)
            if time.monotonic() - self._reported_s >= _REPORT_S:
                self.report()
            if not fresh:
                break
        self.report()
        return published

    def report(self) -> list[MirrorStatus]:
        """Set the lag metric of every table; log targets that became unhealthy or healthy."""
        self._reported_s = time.monotonic()
        found = [status_of(each, self._config.mirror) for each in all_targets(self._store)]
        lags: dict[str, float] = {}
        for each in found:
            lags[each.table] = max(each.lag_s, lags.get(each.table, 0.0))
            self._alert(each)
        for table, lag_s in lags.items():
            self._store.set_table_gauge("mirror_lag_seconds", lag_s, table)
        self._store.remove_table_gauges(but=lags)
        if telemetry.is_enabled():
            self._store.report_pool_usage()
        return found

    def _claim(self) -> list[PublishTarget]:
        now = now_ms()
        with self._store.relaxed() as session:
            claimed = session.query(
                "claim_targets",
                claimed_by=self.name,
                now_ms=now,
                until_ms=now + int(1000 * self._config.mirror.lease_s),
                longest_ms=now + _LONGEST_LEASE_MS,
                limit=_TARGETS_PER_CLAIM,
            )
        if not claimed:
            return []
        rows = self._store.query("claimed_targets", claimed_by=self.name)
        return [PublishTarget.from_row(row) for row in rows]

    def _work(
        self,
        claimed: list[PublishTarget],
        fresh: list[PublishTarget],
        stop: StopSignal,
        failed: set[tuple[int, str]],
    ) -> int:
        published = 0
        served = [each for each in claimed if each not in fresh]
        until = StopAtDeadline(stop, time.monotonic() + self._config.mirror.lease_s / 2)
        try:
            for target in fresh:
                if until.is_set():
                    break
                outcome = self._publisher.advance(
                    target, target.head_version, stop=until, converge=True
                )
                served.append(target)
                published += outcome.published
                if outcome.error is not None or not (outcome.published or until.is_set()):
                    failed.add((target.table.table_id, target.name))
                self._report_step(target, outcome.published, outcome.error)
        finally:
            self._release(claimed, served)
        return published

    def _release(self, claimed: list[PublishTarget], served: list[PublishTarget]) -> None:
        """Release our leases. Targets that were not served come first in the next round."""
        if not claimed:
            return
        now = now_ms()
        with self._store.relaxed() as session:
            for each in claimed:
                session.execute(
                    "release_claim",
                    table_id=each.table.table_id,
                    target=each.name,
                    claimed_by=self.name,
                    now_ms=now if each in served else 0,
                )

    def _report_step(
        self, target: PublishTarget, published: int, error: BaseException | None
    ) -> None:
        if self._on_progress is None:
            return
        self._on_progress(
            PublishedBatch(
                table=target.table.full_name,
                phase="publishing",
                unit="versions",
                done=target.published_version + published + 1,
                total=target.head_version + 1,
                target=target.name,
                published=published,
                error=None if error is None else str(error),
            )
        )

    def _alert(self, each: MirrorStatus) -> None:
        key = (each.table, each.target)
        if each.is_unhealthy == (key in self._unhealthy):
            return
        if each.is_unhealthy:
            self._unhealthy.add(key)
        else:
            self._unhealthy.discard(key)
        telemetry.log(
            _log,
            logging.WARNING if each.is_unhealthy else logging.INFO,
            "mirror is unhealthy" if each.is_unhealthy else "mirror is healthy again",
            table=each.table,
            target=each.target,
            state=each.state,
            pending=each.pending,
            lag_s=round(each.lag_s, 3),
        )
