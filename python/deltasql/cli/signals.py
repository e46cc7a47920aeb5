"""Commands that run until they are told to stop."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_STOP = (signal.SIGTERM, signal.SIGINT)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set.

    A thread sets it. A handler runs in the middle of whatever the main thread does, and where that
    is waiting for the event, it holds the lock that setting it takes: it would wait for itself.
    """
    stop = threading.Event()
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    for number in _STOP:
        signal.signal(number, _nothing)
    # The number of the signal is written there before any handler runs.
    signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(told, stop), daemon=True).start()
    return stop


def _watch(told: int, stop: threading.Event) -> None:
    while not stop.is_set():
        if {*os.read(told, 16)} & {*_STOP}:
            stop.set()


def _nothing(number: int, frame: FrameType | None) -> None:
    """Keep the signal from ending the process."""
