"""Checks deltasql with every supported release of PySpark: `python -m tests.spark.releases`."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docs.tools.versions import delta_spark_release

from tests.compat.environments import BUILD, ROOT, environment
from tests.spark.on_release import CHECKS, ON_CONNECT, RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RELEASES = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each minor release."""
WITH_DELTA_SPARK = ("4.0", "4.1", "4.2")
"""The releases for which there is a build of delta-spark."""
TABLE = ROOT / "docs" / "tools" / "pyspark.json"
# What deltasql[spark] and Connect need besides pyspark, in the releases that the other tests use.
PACKAGES = (
    "arro3-core",
    "deltalake",
    "duckdb",
    "googleapis-common-protos",
    "grpcio",
    "grpcio-status",
    "pandas",
    "pyarrow",
    "pydantic",
    "sqlglot",
    "zstandard",
)


def main() -> int:
    """Run the checks with every release, and return 1 if one failed.

    The results of releases without a failed check are written.
    """
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
    for release, found in results.items():
        for check, result in found.items():
            print(f"pyspark {release}: {check}: {result}")
    passed = {release: found for release, found in results.items() if not failures(found)}
    if passed:
        write_results(passed)
    return 0 if len(passed) == len(results) else 1


def write_results(results: Mapping[str, Mapping[str, str]]) -> None:
    """Write the results of these releases; those of other releases stay as they are."""
    known = json.loads(TABLE.read_text(encoding="utf-8"))
    table = {}
    for check in (*CHECKS, *ON_CONNECT):
        new = {release: found[check] for release, found in results.items() if check in found}
        cells = {**known.get(check, {}), **new}
        table[check] = {each: cells.get(each, "not run") for each in RELEASES}
    TABLE.write_text(f"{json.dumps(table, indent=2)}\n", encoding="utf-8")
    print(f"written: {TABLE.relative_to(ROOT)}", file=sys.stderr)


def failures(found: Mapping[str, str]) -> dict[str, str]:
    """Return the checks that failed."""
    return {check: result for check, result in found.items() if result not in RESULTS}


def python_of(release: str) -> Path:
    """Return the Python of an environment with a release, which the first call installs."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", _lock(), flags=re.MULTILINE))
    packages = [f"pyspark=={release}", *(f"{name}=={pins[name]}" for name in PACKAGES)]
    return environment(Path("pyspark") / release, packages)


def results_of(release: str) -> dict[str, str]:
    """Run the checks in the environment of a release."""
    python = python_of(release)
    jars = ",".join(map(str, _delta_spark(release)))
    return _run(python, CHECKS, "--jars", jars) | _run(python, ON_CONNECT, "--connect")


def _run(python: Path, checks: Iterable[str], *arguments: str) -> dict[str, str]:
    """Run one process of checks and return its results."""
    known = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [str(python), "-m", "tests.spark.on_release", *arguments],
        cwd=ROOT,
        env=known,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        return dict.fromkeys(checks, f"ended with code {done.returncode}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _delta_spark(release: str) -> list[Path]:
    """Return the jars of delta-spark for a release of Spark, which Maven fetches on the first call.

    There are none if delta-spark has no build for the release.
    """
    minor = release.rpartition(".")[0]
    if minor not in WITH_DELTA_SPARK:
        return []
    folder, number = BUILD / "pyspark" / "jars", delta_spark_release()
    names = (f"delta-spark_{minor}_2.13", "delta-storage")
    for name in names:
        if not (folder / f"{name}-{number}.jar").exists():
            artifact = f"-Dartifact=io.delta:{name}:{number}"
            command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", artifact]
            subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)
    return [folder / f"{name}-{number}.jar" for name in names]


def _lock() -> str:
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
