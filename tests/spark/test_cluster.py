"""Lost executors, retried tasks and tasks that run twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("on_cluster.py")


@pytest.mark.everything("a cluster with executors of its own")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a second local address")
@pytest.mark.timeout(1500)
def test_repeated_tasks_write_their_rows_once() -> None:
    # The session of the other tests runs its executor in its own process.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(SUITE)]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
        # With the value `rest`, the cases of the suite, which have no mark, would be left out.
        env={**os.environ, "DELTASQL_EVERYTHING": "1"},
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
