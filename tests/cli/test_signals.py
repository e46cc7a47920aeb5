"""A signal stops a command at once, whatever it is doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHORT = """
import os, signal, threading
from deltasql.cli.signals import stop_event

stop = stop_event()
sender = threading.Thread(target=lambda: os.kill(os.getpid(), signal.NAME))
rounds = 0
while not stop.is_set():
    rounds += 1
    if rounds == 200:
        sender.start()
    stop.wait(0.00001)
print("stopped")
"""
LONG = """
import os, signal, threading
from deltasql.cli.signals import stop_event

stop = stop_event()
threading.Thread(target=lambda: os.kill(os.getpid(), signal.NAME)).start()
stop.wait()
print("stopped")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("code", [SHORT, LONG], ids=["short waits", "a long wait"])
def test_a_wait_ends_with_a_signal(name: str, code: str) -> None:
    command = [sys.executable, "-c", code.replace("NAME", name)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (run.returncode, run.stdout) == (0, "stopped\n"), run.stderr
