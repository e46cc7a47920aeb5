"""The benchmark of sustained ingestion: its processes run, and its verdict finds growth."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.sustained import Minute, verdict

ROOT = Path(__file__).parents[1]
FLAT = Minute(1, 3000, 0, 0, 10, 50, 0.5, 900, 80, 40, 300, 400, 500, 12)


@pytest.mark.everything("starts seven processes and a PostgreSQL server")
@pytest.mark.parametrize("place", [[], ["--s3"]])
def test_short_run_appends_publishes_compacts_and_reads(tmp_path: Path, place: list[str]) -> None:
    out = tmp_path / "minutes.json"
    command = [sys.executable, "-m", "benchmarks.sustained", "--minutes", "0.2", "--out", str(out)]
    subprocess.run([*command, "--rate", "10", "--tables", "2", *place], cwd=ROOT, check=True)
    (found,) = json.loads(out.read_text("utf-8"))
    assert found["appends"] > 50
    assert found["failures"] == 0
    assert min(found["path_ms"], found["sql_ms"], found["runner_mb"]) > 0
    assert found["files"] > 0


def test_verdict_of_constant_figures_is_flat() -> None:
    assert not [line for line in verdict([FLAT] * 12) if "GROWS" in line]


@pytest.mark.parametrize("name", ["p50_ms", "p99_ms", "lag_s", "files", "path_ms", "runner_mb"])
def test_verdict_reports_what_grows(name: str) -> None:
    minutes = [replace(FLAT, **{name: getattr(FLAT, name) * (1 + each)}) for each in range(12)]
    (line,) = [line for line in verdict(minutes) if "GROWS" in line]
    assert line.startswith(name)


def test_one_failure_is_reported() -> None:
    assert "failures             1" in verdict([FLAT, replace(FLAT, failures=1)])
