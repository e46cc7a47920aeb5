"""Runs all roles on a catalog concurrently, and samples the resources that they use."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.commit.support import PROCESSES
from tests.soak import clients, maintenance
from tests.soak.checks import check_run
from tests.soak.ledger import create
from tests.soak.record import Recorder, load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.synchronize import Barrier

    from deltasql import Catalog
    from tests.soak.checks import CheckResult
    from tests.soak.ledger import Place
    from tests.soak.record import Operation

_ROLES = {
    "writer": clients.write,
    "reader": clients.read,
    "reconciler": maintenance.reconcile,
    "optimizer": maintenance.optimize,
    "vacuum": maintenance.vacuum,
}
_SAMPLE_S = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of one process at one time."""

    at_s: float
    resident: int
    descriptors: int


@dataclass(slots=True)
class Soak:
    """The operations, the resources, and the checks of the final state."""

    seconds: float
    operations: list[Operation]
    result: CheckResult
    samples: dict[str, list[list[Sample]]] = field(default_factory=dict)
    """By role, for each of its processes."""


def run(
    place: Place, *, seed: str, seconds: float, writers: int, readers: int, threads: bool = False
) -> Soak:
    """Run every role in separate processes, or in threads for a single-process database."""
    with place.open("sync") as catalog:
        create(catalog)
        roles = [("writer", n) for n in range(writers)] + [("reader", n) for n in range(readers)]
        roles += [("reconciler", 0), ("optimizer", 0), ("vacuum", 0)]
        if threads:
            samples = _in_threads(catalog, place, roles, seed, time.monotonic() + seconds)
        else:
            samples = _in_processes(place, roles, seed, seconds)
        operations = load(place.folder)
        took = max(each.start_s + each.seconds for each in operations)
        took -= min(each.start_s for each in operations)
        return Soak(took, operations, check_run(catalog, operations), samples)


def _in_processes(
    place: Place, roles: list[tuple[str, int]], seed: str, seconds: float
) -> dict[str, list[list[Sample]]]:
    started = {}
    ready = PROCESSES.Barrier(len(roles))
    for role, number in roles:
        arguments = (place, role, number, seed, ready, seconds)
        process = PROCESSES.Process(target=_process, args=arguments)
        process.start()
        started[role, number] = process
    samples: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    while alive := {who: each for who, each in started.items() if each.is_alive()}:
        for who, process in alive.items():
            if (found := _sample(process.pid)) is not None:
                samples[who].append(found)
        next(iter(alive.values())).join(timeout=_SAMPLE_S)
    for who, process in started.items():
        process.join()
        assert process.exitcode == 0, f"{who} ended with {process.exitcode}"
    return _by_role(samples)


def _process(
    place: Place, role: str, number: int, seed: str, ready: Barrier, seconds: float
) -> None:
    # Every second writer publishes its own commits, so that two publishers compete; the reconciler
    # publishes the others.
    mirror = "sync" if role == "writer" and number % 2 else "off"
    with place.open(mirror) as catalog:
        ready.wait(timeout=600)  # on a busy machine, some start long before others
        _work(catalog, place, role, number, seed, time.monotonic() + seconds)


def _work(catalog: Catalog, place: Place, role: str, number: int, seed: str, end: float) -> None:
    name = f"{role}-{number}"
    with (place.folder / f"{name}.jsonl").open("w") as out:
        _ROLES[role](catalog, Recorder(name, out, place, catalog), number, seed, end)


def _in_threads(
    catalog: Catalog, place: Place, roles: list[tuple[str, int]], seed: str, end: float
) -> dict[str, list[list[Sample]]]:
    failures: list[BaseException] = []

    def work(role: str, number: int) -> None:
        try:
            _work(catalog, place, role, number, seed, end)
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=work, args=each) for each in roles]
    for thread in started:
        thread.start()
    samples = []
    while alive := [thread for thread in started if thread.is_alive()]:
        samples += [found] if (found := _sample(os.getpid())) else []
        alive[0].join(timeout=_SAMPLE_S)
    if failures:
        raise failures[0]
    return {"all": [samples]}


def _sample(pid: int | None) -> Sample | None:
    try:
        with open(f"/proc/{pid}/statm") as pages:
            resident = int(pages.read().split()[1]) * _PAGE
        return Sample(time.time(), resident, len(os.listdir(f"/proc/{pid}/fd")))
    except (OSError, IndexError):  # the process has ended, or the system has no /proc
        return None


def _by_role(
    samples: Mapping[tuple[str, int], list[Sample]],
) -> dict[str, list[list[Sample]]]:
    found: dict[str, list[list[Sample]]] = defaultdict(list)
    for (role, _), each in samples.items():
        found[role].append(each)
    return dict(found)
