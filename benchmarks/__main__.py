"""Run benchmarks: `python -m benchmarks [scenario …] [--quick] [--out DIR]`."""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

from benchmarks.harness import environment, save, say, show
from benchmarks.workspace import BUILD, ROOT, Workspace

# In this order: bulk leaves its million files to open and plan.
SCENARIOS = ("commit", "ten_tables", "bulk", "open", "plan", "concurrency")


def main() -> None:
    """Run the chosen scenarios, then draw the plots and write the tables from their JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="deltasql beside deltalake, DuckLake and bare SQL.",
        epilog="example: python -m benchmarks commit plan --quick",
    )
    parser.add_argument("scenario", nargs="*", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few samples")
    parser.add_argument(
        "--out", type=Path, help="where the JSON goes (default: benchmarks/results)"
    )
    options = parser.parse_args()
    unknown = set(options.scenario) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario named {', '.join(sorted(unknown))}; try {', '.join(SCENARIOS)}")
    folder = options.out or (BUILD / "quick" if options.quick else ROOT / "benchmarks" / "results")
    say(f"{environment()['versions']}")
    with Workspace() as workspace:
        for name in [s for s in SCENARIOS if s in (options.scenario or SCENARIOS)]:
            module = importlib.import_module(f"benchmarks.scenarios.{name}")
            say(f"{module.TITLE}")
            start = time.perf_counter()
            results = module.run(workspace, quick=options.quick)
            show(results)
            path = save(
                name, results, folder=folder, quick=options.quick, settings=workspace.settings
            )
            say(f"  {time.perf_counter() - start:.0f} s, {path}")


if __name__ == "__main__":
    main()
