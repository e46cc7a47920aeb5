"""Profile the hottest paths: sample the stack of the calling thread, by package and function.

python -m benchmarks.profiles [--quick] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import deltasql
from benchmarks.harness import environment, print_progress
from benchmarks.ours import Deltasql
from benchmarks.rows import DeltaRows, merge_source, rows
from benchmarks.workload import batch
from benchmarks.workspace import ROOT, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PACKAGE = Path(deltasql.__file__).parent
PAGE = ROOT / "docs" / "benchmarks" / "profiles.md"
RESULTS = ROOT / "benchmarks" / "results" / "profiles" / "hottest.json"
EVERY_S = 0.0005
SHOWN = 10


@dataclass
class Profile:
    """The samples of one path that was run many times."""

    path: str
    runs: int
    milliseconds: float  # duration of one run, including the sampling
    samples: int
    packages: list[tuple[str, float]]  # packages and their share of the time, the largest first
    functions: list[tuple[str, float]]


def profile(path: str, run: Callable[[], object], runs: int) -> Profile:
    """Run a function repeatedly, while another thread samples the stack of this thread."""
    thread = threading.get_ident()
    packages: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    done = threading.Event()

    def sample() -> None:
        while not done.wait(EVERY_S):
            frame = sys._current_frames().get(thread)
            where = _innermost(frame)
            if where is not None:
                packages[where[0]] += 1
                functions[where[1]] += 1

    run()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(EVERY_S / 5)  # so that code that holds the GIL is sampled often enough
    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    start = time.perf_counter()
    for _ in range(runs):
        run()
    seconds = time.perf_counter() - start
    done.set()
    sampler.join()
    sys.setswitchinterval(interval)
    total = packages.total()
    return Profile(
        path,
        runs,
        seconds / runs * 1000,
        total,
        [(name, seen / total) for name, seen in packages.most_common()],
        [(name, seen / total) for name, seen in functions.most_common(SHOWN)],
    )


def _innermost(frame: FrameType | None) -> tuple[str, str] | None:
    """Return the innermost package and function of deltasql on the stack."""
    called = ""
    while frame is not None:
        place = Path(frame.f_code.co_filename)
        if place.is_relative_to(PACKAGE):
            inside = place.relative_to(PACKAGE)
            function = f"{inside.with_suffix('').as_posix()}: {frame.f_code.co_name}"
            return inside.parts[0].removesuffix(".py"), f"{function}{called}"
        # Show the library function that deltasql called after the function of deltasql.
        called = f" → {frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return None


def profiles(workspace: Workspace, *, quick: bool) -> list[Profile]:
    """Sample a small append on two databases, a cold plan and a merge."""
    few = 20 if quick else 400
    found = []
    for backend in ("sqlite", "postgres"):
        folder = workspace.new_folder("append")
        place = {
            "sqlite": f"deltasql://sqlite/{folder}/meta.db?table=t&mirror=sync",
            "postgres": f"deltasql://postgres/{workspace.new_database()}?table=bench.t"
            f"&mirror=sync&location={folder}/t",
        }[backend]
        table, small = DeltaRows("deltasql", backend, place), rows(0, 3)
        append = f"three rows appended by `write_deltalake`, {backend}, published synchronously"
        found.append(profile(append, lambda t=table, s=small: t.append(s), few))  # type: ignore[misc]
    found.append(_plan(workspace, 5_000 if quick else 100_000, few // 4))
    found.append(_merge(workspace, 100_000 if quick else 5_000_000, 2 if quick else 5))
    return found


def _plan(workspace: Workspace, files: int, runs: int) -> Profile:
    table = Deltasql("sqlite", workspace.new_folder("plan"))
    table.create()
    for first in range(0, files, files // 10):
        table.commit(0, table.native(batch(first, files // 10, files)))

    def plan() -> None:
        with deltasql.connect(table.uri) as catalog:
            table.plan(catalog.table("t0").snapshot(), "id BETWEEN 1000 AND 2000")

    return profile(f"connect, open and plan to a few of {files:,} files, SQLite", plan, runs)


def _merge(workspace: Workspace, total: int, runs: int) -> Profile:
    folder = workspace.new_folder("merge")
    table = DeltaRows("deltasql", "sqlite", f"deltasql://sqlite/{folder}/meta.db?table=t")
    for part in range(16):
        table.append(rows(part * total // 16, total // 16))
    version, source = table.version(), merge_source(total, total // 50)

    def merge() -> None:
        table.merge(source)
        table.restore(version)

    return profile(f"merge of {total // 50:,} rows into {total:,}, and its restore", merge, runs)


def page(found: list[Profile]) -> str:
    """Return the generated documentation page."""
    lines = [
        "# Profiles",
        "",
        "Generated by `python -m benchmarks.profiles`, the last step of `make bench`; do not edit. "
        f"The calling thread is sampled every {EVERY_S * 1000:g} ms. The share of a package or "
        "function is the percentage of samples in which its code, or a library that it called, "
        "ran or waited. The [benchmark page](README.md#the-hottest-paths) describes how each "
        "operation was optimized.",
        "",
    ]
    for each in found:
        lines += [
            f"## {each.path[0].upper()}{each.path[1:]}",
            "",
            f"{each.runs} runs, {each.samples:,} samples.",
            "",
            "| package | share |",
            "|---|---:|",
            *(f"| {name} | {share:.0%} |" for name, share in each.packages if share >= 0.01),
            "",
            "| function | share |",
            "|---|---:|",
            *(f"| `{name}` | {share:.0%} |" for name, share in each.functions if share >= 0.01),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Run the profiles, save their JSON and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs")
    parser.add_argument("--out", type=Path, help="write to this folder instead of the repository")
    options = parser.parse_args()
    with Workspace() as workspace:
        found = profiles(workspace, quick=options.quick)
        settings = workspace.settings
    document = {"environment": environment() | {"settings": settings}}
    document["profiles"] = [asdict(each) for each in found]  # type: ignore[assignment]
    result, text = RESULTS, PAGE
    if options.out or options.quick:
        folder = options.out or ROOT / "build" / "bench" / "quick"
        folder.mkdir(parents=True, exist_ok=True)
        result, text = folder / RESULTS.name, folder / PAGE.name
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(document, indent=1) + "\n")
    text.write_text(page(found))
    for each in found:
        print_progress(f"{each.path}: {each.milliseconds:.1f} ms a run, sampled")
    print_progress(f"  {text}")


if __name__ == "__main__":
    main()
