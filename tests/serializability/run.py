"""Runs clients on a catalog, kills some of them, and checks their records."""

from __future__ import annotations

import random
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.commit.support import PROCESSES, audit
from tests.serializability.checker import counts, problems
from tests.serializability.clients import MIN_TRANSACTIONS, create, logs, open_lake, row_logs, work
from tests.serializability.record import load
from tests.serializability.rows import kinds, row_problems

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The problems that were found, and the counts of what was checked."""

    problems: list[str]
    transactions: dict[str, int]
    changes: dict[str, int]
    killed: int


def in_processes(
    uri: DeltaSqlUri, folder: Path, *, seed: str, seconds: float, clients: int = 4
) -> CheckResult:
    """Run clients in separate processes; some are killed and replaced."""
    with open_lake(uri, folder) as catalog:
        create(catalog)
    rng = random.Random(seed)
    lives = [0] * clients
    end = time.monotonic() + seconds

    def start(client: int) -> BaseProcess:
        lives[client] += 1
        name = f"{client}-{lives[client]}"
        process = PROCESSES.Process(
            target=_client, args=(uri, folder, seed, name, end), daemon=True
        )
        process.start()
        return process

    processes = [start(client) for client in range(clients)]
    while time.monotonic() < end - 2:
        time.sleep(rng.uniform(0.5, 2))
        victim = rng.randrange(clients)
        if not _has_begun(folder, f"{victim}-{lives[victim]}"):
            continue
        processes[victim].kill()
        processes[victim].join()
        processes[victim] = start(victim)
    for process in processes:
        process.join(timeout=1200)  # a busy machine may need long
        assert process.exitcode in (0, -signal.SIGKILL), f"a client ended with {process.exitcode}"
    with open_lake(uri, folder) as catalog:
        return _check(catalog, folder, sum(lives) - clients)


def _has_begun(folder: Path, name: str) -> bool:
    out = folder / f"{name}.jsonl"
    return out.exists() and len(out.read_bytes().splitlines()) >= MIN_TRANSACTIONS


def in_threads(
    uri: DeltaSqlUri, folder: Path, *, seed: str, seconds: float, clients: int = 4
) -> CheckResult:
    """Run clients as threads, for a database that belongs to one process."""
    with open_lake(uri, folder) as catalog:
        create(catalog)
        end = time.monotonic() + seconds
        failures: list[BaseException] = []

        def client(name: str) -> None:
            try:
                work(
                    catalog,
                    folder / f"{name}.jsonl",
                    f"{seed}-{name}",
                    end,
                )
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=client, args=(str(number),)) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return _check(catalog, folder, 0)


def _client(uri: DeltaSqlUri, folder: Path, seed: str, name: str, end: float) -> None:
    with open_lake(uri, folder) as catalog:
        work(catalog, folder / f"{name}.jsonl", f"{seed}-{name}", end)


def _check(catalog: Catalog, folder: Path, killed: int) -> CheckResult:
    catalog.mirror.run(once=True)  # publishes what killed clients left unpublished
    audit(catalog)
    transactions = load(sorted(folder.glob("*.jsonl")))
    found = logs(catalog)
    wrong = problems(transactions, found)
    wrong += row_problems(transactions, row_logs(catalog, found))
    return CheckResult(wrong, counts(transactions), kinds(transactions), killed)
