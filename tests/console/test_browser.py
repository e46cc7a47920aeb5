"""Run the browser tests in a process of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.conftest import CHROMIUM

SUITE = Path(__file__).with_name("in_browser.py")


@pytest.mark.timeout(1000)
@pytest.mark.skipif(
    not any(shutil.which(name) for name in CHROMIUM),
    reason="Chromium is missing: install the package chromium",
)
def test_console_works_in_a_browser() -> None:
    # Playwright would leave its event loop in this thread, and other tests run their own loops.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(SUITE)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
