"""Maintenance during the soak: reconciler, optimize and vacuum."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import TYPE_CHECKING

from tests.soak.ledger import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from tests.soak.record import Recorder

_LOOK_S = 0.5


def reconcile(catalog: Catalog, recorder: Recorder, number: int, seed: str, end: float) -> None:
    """Publish the commits of the writers, and record the lag of the mirror."""
    stop = threading.Event()
    with recorder.operation("reconcile"):
        failures: list[BaseException] = []

        def work() -> None:
            try:
                catalog.mirror.run(stop)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        while time.monotonic() < end and thread.is_alive():
            with recorder.operation("lag") as done:
                states = catalog.mirror.status()
                done.details = [
                    max(each.lag_s for each in states),
                    sum(each.pending for each in states),
                ]
            time.sleep(_LOOK_S)
        stop.set()
        thread.join()
        if failures:
            raise failures[0]


def optimize(catalog: Catalog, recorder: Recorder, number: int, seed: str, end: float) -> None:
    """Compact one table after the other."""
    while True:
        for name in TABLES:
            with recorder.operation("optimize") as done:
                done.versions[name] = catalog.table(name).snapshot().version
                metrics = catalog.optimize(name)
                done.details = [metrics["numFilesRemoved"], metrics["numFilesAdded"]]
            time.sleep(recorder.place.pause_s)
        if time.monotonic() > end:
            return


def vacuum(catalog: Catalog, recorder: Recorder, number: int, seed: str, end: float) -> None:
    """Delete unneeded files, found in SQL and every second time by a listing."""
    hours = recorder.place.retention_s / 3600
    for full in _alternating(end):
        for name in TABLES:
            with recorder.operation("vacuum, full" if full else "vacuum") as done:
                gone = catalog.vacuum(
                    name,
                    retention_hours=hours,
                    enforce_retention_duration=False,
                    dry_run=False,
                    full=full,
                )
                done.details = [len(gone)]
            time.sleep(recorder.place.pause_s)


def _alternating(end: float) -> Iterator[bool]:
    for number in count():
        if number >= 2 and time.monotonic() > end:  # at least one of each
            return
        yield number % 2 == 1
