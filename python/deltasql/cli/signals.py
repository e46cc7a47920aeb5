"""Stop a long-running command cleanly on SIGTERM and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_STOP = (signal.SIGTERM, signal.SIGINT)
_END = b"\x00"  # no signal has the number 0


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; a second signal raises KeyboardInterrupt.

    A thread sets the event, not the signal handler. The handler runs in the main thread, which may
    be waiting for the event and hold its lock: setting the event there would deadlock.
    """
    stop = threading.Event()
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:  # the command does not check the event
            raise KeyboardInterrupt

    # Python writes the signal number to this pipe; the thread reads it.
    descriptor = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    handlers = [(number, signal.signal(number, ask)) for number in _STOP]
    thread = threading.Thread(target=_watch, args=(told, stop), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in handlers:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(descriptor)
        os.write(tells, _END)
        thread.join()
        os.close(told)
        os.close(tells)


def _watch(told: int, stop: threading.Event) -> None:
    while True:
        found = os.read(told, 16)
        if {*found} & {*_STOP}:
            stop.set()
        if _END in found:
            return
