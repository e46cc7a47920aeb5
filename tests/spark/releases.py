"""Checks deltasql with every supported release of PySpark: `python -m tests.spark.releases`."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.compat.environments import ROOT, environment
from tests.spark.on_release import CHECKS, YES

RELEASES = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each minor release."""
RESULTS = ROOT / "docs" / "tools" / "pyspark.json"
# What deltasql[spark] needs besides pyspark, in the releases that the other tests use.
PACKAGES = (
    "arro3-core",
    "deltalake",
    "duckdb",
    "pandas",
    "pyarrow",
    "pydantic",
    "pydantic-settings",
    "sqlglot",
)


def main() -> int:
    """Run the checks with every release, write the results, and return 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.releases",
        description="Run a small set of checks with every supported release of PySpark.",
        epilog="example: python -m tests.spark.releases 4.0.5",
    )
    parser.add_argument("release", nargs="*", help=f"default: {', '.join(RELEASES)}")
    asked = tuple(parser.parse_args().release or RELEASES)
    results = {}
    for number, release in enumerate(asked, 1):
        print(f"{number} of {len(asked)}: pyspark {release}", file=sys.stderr)
        results[release] = results_of(release)
    failed = 0
    for release, found in results.items():
        for check, result in found.items():
            failed += result != YES
            print(f"pyspark {release}: {check}: {result}")
    if asked == RELEASES and not failed:
        table = {check: {each: results[each][check] for each in RELEASES} for check in CHECKS}
        RESULTS.write_text(f"{json.dumps(table, indent=2)}\n", encoding="utf-8")
        print(f"written: {RESULTS.relative_to(ROOT)}", file=sys.stderr)
    return 1 if failed else 0


def results_of(release: str) -> dict[str, str]:
    """Run the checks in the environment of a release, which is installed on the first call."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", _lock(), flags=re.MULTILINE))
    packages = [f"pyspark=={release}", *(f"{name}=={pins[name]}" for name in PACKAGES)]
    python = environment(Path("pyspark") / release, packages)
    known = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [str(python), "-m", "tests.spark.on_release"],
        cwd=ROOT,
        env=known,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        return dict.fromkeys(CHECKS, f"ended with code {done.returncode}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _lock() -> str:
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
