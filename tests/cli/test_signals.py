"""A signal stops a command at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from deltasql.cli.services import stopping

SHORT = """
import os, signal, threading
from deltasql.cli.services import stopping

sender = threading.Thread(target=lambda: os.kill(os.getpid(), signal.NAME))
rounds = 0
with stopping() as stop:
    while not stop.is_set():
        rounds += 1
        if rounds == 200:
            sender.start()
        stop.wait(0.00001)
print("stopped")
"""
LONG = """
import os, signal, threading
from deltasql.cli.services import stopping

with stopping() as stop:
    threading.Thread(target=lambda: os.kill(os.getpid(), signal.NAME)).start()
    stop.wait()
print("stopped")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("code", [SHORT, LONG], ids=["short waits", "a long wait"])
def test_signal_ends_a_wait(name: str, code: str) -> None:
    command = [sys.executable, "-c", code.replace("NAME", name)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (run.returncode, run.stdout) == (0, "stopped\n"), run.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_raises_keyboard_interrupt(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), stopping() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(200)
        os.kill(os.getpid(), number)
        while True:
            stop.wait(1)


def test_signal_handlers_are_restored() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with stopping() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(200)
    assert [signal.getsignal(number) for number in numbers] == before
    assert len(os.listdir("/proc/self/fd")) == files
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            stop.wait(1)
