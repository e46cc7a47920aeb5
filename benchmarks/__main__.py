"""Run benchmarks: `python -m benchmarks [scenario …] [--quick] [--out DIR]`."""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plot, report, scale_report
from benchmarks.harness import environment, print_progress, save, show
from benchmarks.workspace import BUILD, ROOT, Workspace

RESULTS = ROOT / "benchmarks" / "results"
# The order matters: `open` and `plan` reuse the table of a million files that `bulk` creates.
SCENARIOS = (
    "start_up",
    "commit",
    "ten_tables",
    "bulk",
    "open",
    "plan",
    "concurrency",
    "mirror",
    "durable",
    "object_store",
    "import",
    "api",
    "spark",
    "vectors",
    "scale",
    "ten_million",
)
# Scenarios whose name is not a valid module name.
MODULES = {"import": "migrate"}


def main() -> None:
    """Run the selected scenarios, then draw the plots and write the tables from their JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare deltasql with deltalake, DuckLake and plain SQL.",
        epilog="example: python -m benchmarks commit plan --quick",
    )
    parser.add_argument("scenario", nargs="*", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few samples")
    parser.add_argument(
        "--out", type=Path, help="write the JSON to this folder (default: benchmarks/results)"
    )
    parser.add_argument("--report", action="store_true", help="only redraw from the JSON")
    options = parser.parse_args()
    unknown = set(options.scenario) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario named {', '.join(sorted(unknown))}; try {', '.join(SCENARIOS)}")
    folder = options.out or (BUILD / "quick" if options.quick else RESULTS)
    docs = ROOT / "docs" / "benchmarks" if folder == RESULTS else folder / "report"
    if not options.report:
        run(options.scenario or SCENARIOS, folder, quick=options.quick)
    print_progress(report.summary(folder))
    grown = ROOT / "docs" / "reliability" if folder == RESULTS else docs
    for path in [
        *plot.draw(folder, docs),
        report.write(folder, docs),
        *scale_report.write(folder, grown),
    ]:
        print_progress(f"  {path}")


def run(scenarios: Sequence[str], folder: Path, *, quick: bool) -> None:
    """Run scenarios in sequence and save the results of each."""
    print_progress(f"{environment()['versions']}")
    # Some containers set this variable, with which every process compiles all imported modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with Workspace() as workspace:
        for name in [s for s in SCENARIOS if s in scenarios]:
            module = importlib.import_module(f"benchmarks.scenarios.{MODULES.get(name, name)}")
            print_progress(f"{module.TITLE}")
            start = time.perf_counter()
            results = module.run(workspace, quick=quick)
            show(results)
            path = save(name, results, folder=folder, quick=quick, settings=workspace.settings)
            print_progress(f"  {time.perf_counter() - start:.0f} s, {path}")


if __name__ == "__main__":
    main()
