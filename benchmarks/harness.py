"""Timing, statistics, and the JSON that all plots and tables are generated from."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from benchmarks.workload import Facts

EARLIER = "earlier"
"""The subfolder of the results folder with the results of the previous run."""

Native = Any


class Contender(ABC):
    """One system under test: a catalog of tables t0, t1, … and commits of files to them.

    Before `create` or `connect`, an object has only plain values, so that it can be pickled and
    another process can connect to the same catalog.
    """

    name: str
    backend: str
    # The maximum number of commits for this system; more would take hours.
    max_commits: int = 100_000
    # The errors that concurrent commits may raise.
    errors: tuple[type[Exception], ...] = ()

    @abstractmethod
    def create(self, tables: int = 1) -> None:
        """Create a new catalog with empty tables and connect to it."""

    def unconnected(self) -> Self:
        """Return a copy without open connections, which can be sent to another process."""
        copy = object.__new__(type(self))
        copy.__dict__.update({k: v for k, v in vars(self).items() if not k.startswith("_")})
        return copy

    @abstractmethod
    def connect(self) -> None:
        """Connect to the catalog of `create` from this process."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def native(self, files: Sequence[Facts]) -> Native:
        """Convert files to the input of this system's API; not timed."""

    @abstractmethod
    def commit(self, table: int, files: Native) -> None:
        """Commit files to one table; timed."""

    def publish(self) -> bool:
        """Wait until all commits are published; return False if that takes too long."""
        return True

    def commit_each(self, files: Native, tables: int) -> None:
        """Commit one file to each table, in one transaction if the system supports it; timed."""
        raise NotImplementedError

    @abstractmethod
    def prepare(self) -> None:
        """Import and load everything that a program loads once; not timed."""

    def prepare_to(self, action: str) -> None:
        """Prepare, and load the modules that only this action needs."""
        self.prepare()

    def open(self) -> Native:
        """Connect and open table t0; timed in a new process."""
        raise NotImplementedError

    def reopen(self, handle: Native) -> Native:
        """Open the table again in a process that had it open; timed."""
        return self.open()

    def refresh(self, handle: Native) -> Native:
        """Bring an open table to the version that another process committed; timed."""
        return self.reopen(handle)

    def register(self, folder: Path) -> None:
        """Create table t0 from the Parquet files of a folder, with statistics; timed."""
        raise NotImplementedError

    def list_files(self, handle: Native) -> int:
        """List every file of an open table as Arrow and return their number; timed."""
        raise NotImplementedError

    def plan(self, handle: Native, predicate: str) -> int:
        """Return how many files of an open table may match; timed."""
        raise NotImplementedError

    @abstractmethod
    def count(self, table: int) -> int:
        """Count the commits in the table (files or versions, one per commit)."""

    def gaps(self, table: int) -> int:
        """Count the missing version numbers below the latest; 0 if the system has no versions."""
        return 0

    def advance(self, table: int, files: Iterable[Facts]) -> None:
        """Commit files one by one; not timed."""
        for file in files:
            self.commit(table, self.native([file]))


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of one measurement; `value` is their median."""

    contender: str
    backend: str
    case: str
    size: int
    metric: str
    unit: str
    value: float
    samples: int
    low: float
    high: float
    extra: dict[str, Any] = field(default_factory=dict)


def result(
    contender: str,
    backend: str,
    values: Sequence[float],
    *,
    case: str,
    size: int,
    metric: str,
    unit: str,
    **extra: Any,
) -> Result:
    """Return samples with their median and their 10th and 90th percentiles."""
    ordered = sorted(values)
    return Result(
        contender=contender,
        backend=backend,
        case=case,
        size=size,
        metric=metric,
        unit=unit,
        value=round(statistics.median(ordered), 6),
        samples=len(ordered),
        low=round(ordered[len(ordered) // 10], 6),
        high=round(ordered[len(ordered) * 9 // 10], 6),
        extra=extra,
    )


def timed(call: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleave(
    calls: dict[str, Callable[[], float]], *, rounds: int, per_round: int, budget: float = 20.0
) -> dict[str, list[float]]:
    """Take samples of all contenders in turns, so that noise affects them equally.

    A contender that has used up its time budget takes one sample per round from then on.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(per_round):
                seconds = call()
                samples[name].append(seconds)
                spent[name] += seconds
                if spent[name] > budget:
                    break
    return samples


def environment() -> dict[str, Any]:
    """Describe the machine and the versions of the software."""
    packages = (
        "deltasql",
        "deltalake",
        "duckdb",
        "duckdb-extension-ducklake",
        "psycopg",
        "pyarrow",
        "pyspark",
    )
    return {
        "versions": {name: _version(name) for name in packages}
        | {"python": platform.python_version()},
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def save(
    scenario: str, results: Sequence[Result], *, folder: Path, quick: bool, settings: dict[str, str]
) -> Path:
    """Write the results of a scenario; those of the previous run are kept for comparison."""
    earlier = folder / EARLIER
    earlier.mkdir(parents=True, exist_ok=True)
    path = folder / f"{scenario}.json"
    if path.exists():
        path.replace(earlier / path.name)
    document = {
        "scenario": scenario,
        "quick": quick,
        "environment": environment() | {"settings": settings},
        "results": [asdict(r) for r in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def print_progress(text: str) -> None:
    """Print the progress of the run."""
    print(text, file=sys.stderr, flush=True)


def show(results: Sequence[Result], *, base: str | None = None) -> None:
    """Print results; with `base`, also the ratios to that contender for the same case and size."""
    bases = {(r.case, r.size, r.metric): r.value for r in results if r.contender == base}
    for r in results:
        against = bases.get((r.case, r.size, r.metric))
        ratio = f"{r.value / against:10.2f}x" if against else ""
        print_progress(
            f"  {r.case:<22} {r.size:>9,} {r.contender:<26} {r.value:>12,.3f} {r.unit:<10} "
            f"[{r.low:,.3f} … {r.high:,.3f}] n={r.samples}{ratio}"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
