"""Whose turn it is to write to a SQLite file: two seats that all processes see.

A seat is the time at which a turn ends, on the clock that the processes of a machine share: who
dies, or does not write any more, has given it back by then. Nothing but patience depends on it.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltasql.store.file_lock import FileLock

# One prepares what it writes while another writes; a third would only take the processor.
_SEATS = 2
# Behind the seats: until when somebody sleeps who wants one, and when who has one came again.
_SLEEPER, _AGAIN = _SEATS, _SEATS + 1
# Who comes again within this, by and large, does nothing but write: to prepare takes half of it.
_PAUSE_S = 0.001
_TIMES, _TIME = Struct(f"={_SEATS + 2}d"), Struct("=d")


class Seats:
    """The seats of one database; without a file there are none."""

    def __init__(self, file: FileLock, turn_s: float) -> None:
        self._file, self._turn_s = file, turn_s
        self._own, self._own_end = 0, 0.0
        self._left, self._paused_s, self._pauses = 0.0, 0.0, 0

    def arrive(self) -> None:
        """Note how long this process paused since it wrote."""
        self._paused_s += time.monotonic() - self._left
        self._pauses += 1

    def leave(self) -> None:
        """Note that this process has written."""
        self._left = time.monotonic()

    def has_one(self) -> bool:
        """Tell whether the turn of this process goes on, and nobody took its seat."""
        now = time.monotonic()
        if now >= self._own_end:
            return False
        if self._read()[self._own] == self._own_end:
            return True
        self._own_end = now  # it was taken: the turn ended early
        return False

    def is_used_up(self) -> bool:
        """Tell whether this process just had a turn, and wrote for all of it."""
        was_just_now = 0 <= time.monotonic() - self._own_end <= self._turn_s
        return was_just_now and self._paused_s < _PAUSE_S * self._pauses

    def until_free(self) -> float:
        """Return in how many seconds a turn ends."""
        times, now = self._read(), time.monotonic()
        return min(self._ahead(end, now) for end in times[:_SEATS])

    def somebody_sleeps(self) -> bool:
        """Tell whether others sleep who want a seat."""
        return self._ahead(self._read()[_SLEEPER], time.monotonic()) > 0

    def sleep(self, pause_s: float) -> None:
        """Sleep, and let those know of it who come from their turn."""
        self._write(_SLEEPER, time.monotonic() + pause_s)
        time.sleep(pause_s)

    def come_again(self) -> None:
        """Note that who has a seat has use for it."""
        self._write(_AGAIN, time.monotonic())

    def unused_s(self) -> float:
        """Return for how long nobody came who had a seat."""
        return time.monotonic() - self._read()[_AGAIN]

    def take(self) -> None:
        """Take the seat of which the turn ended, or will end first."""
        times, now = self._read(), time.monotonic()
        left = [self._ahead(end, now) for end in times[:_SEATS]]
        self._own, self._own_end = left.index(min(left)), now + self._turn_s
        self._paused_s, self._pauses = 0.0, 0
        self._write(self._own, self._own_end)

    def _ahead(self, end: float, now: float) -> float:
        # What is too far ahead was written before the machine was started again.
        return end - now if 0 < end - now <= 2 * self._turn_s else 0

    def _read(self) -> tuple[float, ...]:
        return _TIMES.unpack(self._file.read(_TIMES.size).ljust(_TIMES.size, b"\0"))

    def _write(self, at: int, moment: float) -> None:
        self._file.write(_TIME.pack(moment), at * _TIME.size)
