"""Spark Connect, without py4j, gives the same rows.

All Connect tests run in one process with one server.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("on_connect.py")


@pytest.mark.timeout(1000)
def test_engine_runs_on_spark_connect() -> None:
    # A process has classic Spark or Connect, never both.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(SUITE)]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
