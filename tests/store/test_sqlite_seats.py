"""The two seats of those who write to a SQLite file by turns."""

from __future__ import annotations

import math
import os
import resource
import struct
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from deltasql.store.file_lock import FileLock
from deltasql.store.sqlite_seats import Seats

if TYPE_CHECKING:
    from pathlib import Path

TURN_S = 60.0


def seats(folder: Path, turn_s: float = TURN_S) -> Seats:
    """Return the seats as another process sees them."""
    return Seats(FileLock(f"{folder}/meta.db-writer"), turn_s)


def test_third_one_takes_the_seat_of_who_sits_longest(tmp_path: Path) -> None:
    first, second, third = (seats(tmp_path) for _ in range(3))
    assert not first.until_free()
    first.take()
    assert not second.until_free()
    second.take()
    assert first.has_one()
    assert second.has_one()
    assert TURN_S / 2 < third.until_free() <= TURN_S
    third.take()
    assert not first.has_one()
    assert second.has_one()
    assert third.has_one()


def write(mine: Seats, *, times: int, pause_s: float) -> None:
    for _ in range(times):
        mine.leave()
        if pause_s:
            time.sleep(pause_s)
        mine.arrive()


def test_turn_that_ended_is_used_up_and_its_seat_free(tmp_path: Path) -> None:
    mine, other = seats(tmp_path, 0.5), seats(tmp_path, 0.5)
    mine.take()
    write(mine, times=1000, pause_s=0)
    time.sleep(0.6)
    assert not mine.has_one()
    assert mine.is_used_up()
    assert not other.until_free()
    time.sleep(0.5)
    assert not mine.is_used_up()


def test_turn_with_pauses_is_not_used_up(tmp_path: Path) -> None:
    mine = seats(tmp_path, 0.5)
    mine.take()
    write(mine, times=10, pause_s=0.01)
    time.sleep(0.5)
    assert not mine.has_one()
    assert not mine.is_used_up()
    mine.take()  # the next turn counts for itself
    write(mine, times=1000, pause_s=0)
    time.sleep(0.6)
    assert mine.is_used_up()


@pytest.mark.parametrize(("pause_s", "is_used_up"), [(0, True), (0.01, False)])
def test_seat_that_was_taken_is_used_up_by_who_wrote_without_pauses(
    tmp_path: Path, pause_s: float, is_used_up: bool
) -> None:
    first, second, third = (seats(tmp_path) for _ in range(3))
    first.take()
    second.take()
    write(first, times=1000 if is_used_up else 10, pause_s=pause_s)
    third.take()
    assert not first.has_one()
    assert first.is_used_up() is is_used_up


def test_who_sleeps_is_seen_until_he_wakes(tmp_path: Path) -> None:
    sleeper, other = seats(tmp_path), seats(tmp_path)
    sleeping = get_context("fork").Process(target=sleeper.sleep, args=(0.5,))
    sleeping.start()
    while not other.somebody_sleeps():
        assert sleeping.is_alive()
    sleeping.join()
    assert not other.somebody_sleeps()


def test_coming_again_is_seen_by_others(tmp_path: Path) -> None:
    mine, other = seats(tmp_path), seats(tmp_path)
    assert other.unused_s() > 1
    mine.come_again()
    assert other.unused_s() < 1


@pytest.mark.parametrize("moment", [math.nan, math.inf, -math.inf, 1e300, -1.0])
def test_times_of_another_clock_hold_up_nobody(tmp_path: Path, moment: float) -> None:
    (tmp_path / "meta.db-writer").write_bytes(struct.pack("=4d", *[moment] * 4))
    mine = seats(tmp_path)
    assert not mine.until_free()
    assert not mine.somebody_sleeps()
    mine.take()
    assert mine.has_one()


def test_without_a_file_there_are_no_seats(tmp_path: Path) -> None:
    mine = seats(tmp_path / "nowhere")
    mine.take()
    assert not mine.has_one()
    assert not mine.until_free()


def test_full_disk_leaves_the_seats_as_they_were(tmp_path: Path) -> None:
    mine = seats(tmp_path)
    child = get_context("fork").Process(target=_take_without_room, args=(mine,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert not os.path.getsize(tmp_path / "meta.db-writer")


def _take_without_room(mine: Seats) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    mine.take()
    assert not mine.has_one()
