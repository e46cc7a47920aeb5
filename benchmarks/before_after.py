"""Compare this tree with the 0.1.0 baseline and with peers, all in one run.

`python -m benchmarks.before_after [case …] [--rounds N] [--out FILE]` runs every case in a separate
process for the baseline, this tree and the peer. They alternate in every round, so that noise of
the machine affects all of them. The output has medians and two ratios: this tree to the baseline,
and this tree to the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import baseline
from benchmarks.harness import environment, print_progress
from benchmarks.workspace import ROOT, Workspace

if TYPE_CHECKING:
    from benchmarks.harness import Contender
    from benchmarks.rows import DeltaRows

BEFORE, NOW = "before", "now"
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Job:
    """The input of one process: a case and a system, in a folder that later rounds reuse."""

    case: str
    system: str
    backend: str
    folder: str
    database: str


@dataclass(frozen=True, slots=True)
class Case:
    """A measurement, its databases, and the peer for each database."""

    run: Callable[[Job], Figures]
    peers: dict[str, tuple[str, ...]]
    keeps_data: bool = False
    """Whether later rounds use the tables of the first round."""
    more_is_better: bool = False


def tiny_append(job: Job) -> Figures:
    """Measure `write_deltalake` of three rows in a running process, including publishing, in ms."""
    from benchmarks.scenarios.api import _tiny_append
    from benchmarks.scenarios.commit import Runner

    runner = Runner(_contender(job, mirror="sync"))
    append = _tiny_append(runner.contender)
    for _ in range(5):
        append()
    return {"ms": _median_ms(append, 60)}


def commit(job: Job) -> Figures:
    """Measure a commit of one staged file, without publishing, in ms."""
    from benchmarks.scenarios.commit import Runner

    runner = Runner(_contender(job))
    return {"ms": _median_ms(runner.one, 150)}


def mirrored_commit(job: Job) -> Figures:
    """Measure a commit of one staged file after 10,000 commits, including publishing, in ms."""
    from benchmarks.scenarios.commit import Runner

    runner = Runner(_contender(job, mirror="sync"))
    runner.advance_to(10_000)
    return {"ms": _median_ms(runner.one, 20 if job.system == "deltalake" else 150)}


def eight_processes(job: Job) -> Figures:
    """Measure the commits per second of eight processes, and the slowest divided by the fastest."""
    from benchmarks.scenarios.concurrency import _race

    outcome, first_failure = _race(_contender(job), 1, 8, 3.0)
    if job.system == "deltasql" and (outcome["failures"] or outcome["gaps"] or outcome["lost"]):
        raise RuntimeError(f"{outcome} {first_failure}")
    return {"commits/s": outcome["rate"], "slowest share": outcome["slowest_share"]}


def bulk_commit(job: Job) -> Figures:
    """Measure the files per second of three commits of 100,000 files; return the slowest."""
    return _bulk_rate(job, 100_000)


def middle_commit(job: Job) -> Figures:
    """Measure the files per second of three commits of 10,000 files; return the slowest."""
    return _bulk_rate(job, 10_000)


def _bulk_rate(job: Job, files: int) -> Figures:
    from benchmarks.workload import batch

    contender = _contender(job)
    contender.create(1)
    rates = []
    for step in range(3):
        native = contender.native(batch(step * files, files, 10 * files))
        start = time.perf_counter()
        contender.commit(0, native)
        rates.append(files / (time.perf_counter() - start))
    return {"files/s": min(rates)}


def skipping(job: Job) -> Figures:
    """Measure finding 40 of 40,000 files by an unclustered column, in a new process, in ms."""
    from benchmarks.cold import Request, measure
    from benchmarks.workload import batch, predicates

    contender, files = _contender(job), 40_000
    made = Path(job.folder) / "made"
    if not made.exists():
        contender.create(1)
        contender.commit(0, contender.native(batch(0, files, files)))
        contender.close()
        made.touch()
    predicate = predicates(files)[2]
    samples = [measure(Request(contender.unconnected(), "plan", predicate.sql)) for _ in range(3)]
    found = [each.files for each in samples]
    if any(count != len(predicate.files) for count in found):
        raise RuntimeError(f"{job.system} found {found} files instead of {len(predicate.files)}")
    return {"ms": statistics.median(each.total_seconds for each in samples) * 1000}


def open_and_list(job: Job) -> Figures:
    """Measure opening a table of a million files, and listing it, in a new process, in ms."""
    from benchmarks.cold import Request, measure
    from benchmarks.datasets import FILES_PER_COMMIT, deltalake_table
    from benchmarks.workload import batch

    files = 1_000_000
    if job.system == "deltalake":
        contender = deltalake_table(files)
    else:
        contender = _contender(job)
        made = Path(job.folder) / "made"
        if not made.exists():
            contender.create(1)
            for first in range(0, files, FILES_PER_COMMIT):
                native = contender.native(batch(first, FILES_PER_COMMIT, files))
                contender.commit(0, native)
            contender.close()
            made.touch()
    measurement = measure(Request(contender.unconnected(), "list"))
    if measurement.files != files:
        raise RuntimeError(f"{job.system} lists {measurement.files} of {files} files")
    return {
        "open ms": measurement.open_seconds * 1000,
        "open and list ms": measurement.total_seconds * 1000,
        "MB": measurement.peak_mb,
    }


def million_rows(job: Job) -> Figures:
    """Measure changes to a table of 5,000,000 rows in 16 files, in ms, and a merge's memory."""
    from benchmarks.rows import rows
    from benchmarks.rows_process import Work, measure
    from benchmarks.scenarios.api import FILES, ROWS, SOURCE, _dml_steps

    system = _rows(job)
    made = Path(job.folder) / "made"
    if not made.exists():
        for number in range(FILES):
            system.append(rows(number * (ROWS // FILES), ROWS // FILES))
        made.touch()
    merged = measure(Work(system, {"merge": (ROWS, SOURCE)}, FILES - 1))
    others = measure(Work(system, _dml_steps(ROWS), FILES - 1))
    found = {f"{name} ms": s * 1000 for name, s in (merged.seconds | others.seconds).items()}
    return found | {"merge MB": merged.peak_mb}


def small_tables(job: Job) -> Figures:
    """Measure merges, updates and deletes of few rows in a running process, in ms by table size."""
    from benchmarks.rows import rows

    found: Figures = {}
    for size in (1_000, 10_000, 64_000, 100_000):
        system = _rows(job, f"t{size}")
        system.append(rows(0, size))
        source = rows(size - size // 100, size // 50)
        calls: dict[str, Callable[[], object]] = {
            "merge": lambda system=system, source=source: system.merge(source),
            "update": lambda system=system: system.update("id >= 10 AND id < 15"),
            "delete": lambda system=system: system.delete("id >= 20 AND id < 25"),
        }
        for name, call in calls.items():
            samples = []
            for _ in range(9):
                version = system.version()
                start = time.perf_counter()
                call()
                samples.append(time.perf_counter() - start)
                system.restore(version)
            found[f"{name}, {size:,} rows, ms"] = statistics.median(samples[2:]) * 1000
    return found


CASES: dict[str, Case] = {
    "tiny append": Case(
        tiny_append,
        {"sqlite": ("deltalake", "ducklake"), "postgres": ("deltalake", "ducklake")},
    ),
    "commit": Case(commit, {"sqlite": ("floor",), "postgres": ("floor",), "duckdb": ("floor",)}),
    "mirrored commit at 10,000": Case(
        mirrored_commit, {"sqlite": ("deltalake",), "postgres": ("deltalake",)}
    ),
    "eight processes": Case(
        eight_processes, {"sqlite": ("floor",), "postgres": ("ducklake",)}, more_is_better=True
    ),
    "bulk commit": Case(
        bulk_commit, {"sqlite": ("floor",), "postgres": ("floor",)}, more_is_better=True
    ),
    "middle commit": Case(
        middle_commit, {"sqlite": ("floor",), "postgres": ("floor",)}, more_is_better=True
    ),
    "skipping": Case(skipping, {"sqlite": (), "postgres": ()}, keeps_data=True),
    "open and list": Case(
        open_and_list, {"sqlite": ("deltalake",), "postgres": ("deltalake",)}, keeps_data=True
    ),
    "million rows": Case(million_rows, {"sqlite": ("deltalake",)}, keeps_data=True),
    "small tables": Case(small_tables, {"sqlite": ("deltalake",)}),
}


def _contender(job: Job, mirror: str = "off") -> Contender:
    from benchmarks.ducklake import DuckLake
    from benchmarks.floors import DuckdbFloor, PostgresFloor, PostgresRowLockFloor, SqliteFloor
    from benchmarks.ours import Deltasql
    from benchmarks.peers import Deltalake

    folder = Path(job.folder)
    if job.system == "deltasql":
        return Deltasql(job.backend, folder, job.database, mirror=mirror)
    if job.system == "deltalake":
        return Deltalake(folder)
    if job.system == "ducklake":
        return DuckLake(job.backend, folder).on_database(job.database)
    if job.backend == "postgres":
        races = job.case == "eight processes"
        return (PostgresRowLockFloor if races else PostgresFloor)(job.database)
    return {"sqlite": SqliteFloor, "duckdb": DuckdbFloor}[job.backend](folder)


def _rows(job: Job, table: str = "t0") -> DeltaRows:
    # A late import, so that a process loads only what its case uses.
    from benchmarks.rows import DeltaRows

    if job.system == "deltalake":
        return DeltaRows("deltalake", "path", f"{job.folder}/{table}")
    uri = f"deltasql://sqlite/{job.folder}/meta.db?table={table}&mirror=sync"
    return DeltaRows("deltasql-sqlite-sync", "sqlite", uri)


def _median_ms(call: Callable[[], float], count: int) -> float:
    return statistics.median(call() for _ in range(count)) * 1000


def compare(names: list[str], rounds: int) -> list[dict[str, object]]:
    """Run cases and return a row for each measurement, with the medians of all systems."""
    site, rows = str(baseline.site()), []
    with Workspace() as workspace:
        for name in names:
            case = CASES[name]
            for backend, peers in case.peers.items():
                found = _compare(workspace, site, name, case, backend, peers, rounds)
                for row in found:
                    print_progress(_line(row))
                rows += found
    return rows


def _compare(
    workspace: Workspace,
    site: str,
    name: str,
    case: Case,
    backend: str,
    peers: tuple[str, ...],
    rounds: int,
) -> list[dict[str, object]]:
    sides = {BEFORE: "deltasql", NOW: "deltasql", **{peer: peer for peer in peers}}
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    kept: dict[str, Job] = {}
    for number in range(rounds):
        for side, system in sides.items():
            print_progress(f"  {name}, {backend}, round {number + 1} of {rounds}: {side}")
            job = kept.get(side)
            if job is None:
                folder = workspace.new_folder(f"{side}-{backend}")
                database = workspace.new_database() if backend == "postgres" else ""
                job = Job(name, system, backend, str(folder), database)
            if case.keeps_data:
                kept[side] = job
            workspace.settle()
            for figure, value in _run_request(job, site if side == BEFORE else None).items():
                samples[side].setdefault(figure, []).append(value)
    return [
        {
            "case": name,
            "backend": backend,
            "figure": figure,
            "more_is_better": case.more_is_better,
            **{side: statistics.median(found[figure]) for side, found in samples.items()},
        }
        for figure in samples[NOW]
    ]


def _run_request(job: Job, path: str | None) -> Figures:
    """Run a job in a process that imports deltasql from `path`, or from this tree."""
    tree = path or str(ROOT / "python")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.before_after", "--job"],
        input=json.dumps(asdict(job)).encode(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": tree},
        check=True,
    )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _line(row: dict[str, object]) -> str:
    before, now = float(str(row[BEFORE])), float(str(row[NOW]))
    text = f"{row['case']}, {row['backend']}, {row['figure']}: {before:,.2f} → {now:,.2f}"
    text += f" ({now / before:.2f} of before)"
    for peer in ("deltalake", "ducklake", "floor"):
        if peer in row:
            other = float(str(row[peer]))
            ratio = now / other if row["more_is_better"] else other / now
            text += f"; {peer} {other:,.2f}, we are {ratio:.2f}× as fast"
    return text


def main() -> None:
    """Run the selected cases, or one job from stdin."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.before_after",
        description="This tree against the 0.1.0 baseline and peers.",
        epilog='example: python -m benchmarks.before_after "tiny append" --rounds 3',
    )
    parser.add_argument("case", nargs="*", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures as JSON, too")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = Job(**json.load(sys.stdin))
        print(json.dumps(CASES[job.case].run(job)))
        return
    unknown = set(options.case) - set(CASES)
    if unknown:
        parser.error(f"no case named {', '.join(sorted(unknown))}; try {', '.join(CASES)}")
    rows = compare(options.case or list(CASES), options.rounds)
    for row in rows:
        print(_line(row))
    if options.out:
        found = {"baseline": baseline.COMMIT, "environment": environment(), "figures": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import before_after

    before_after.main()
