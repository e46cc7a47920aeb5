"""Storages among processes: races, forks, and a process that is killed half-way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from deltasql.config import StorageSettings
from deltasql.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TURNS = 8


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A location and the options for it, to hand to another process."""
    if request.param == "local":
        return str(tmp_path / "lake"), {}
    return request.getfixturevalue("s3_location"), request.getfixturevalue("s3_options")


def opened(place: tuple[str, dict[str, str]]) -> Storage:
    return open_storage(place[0], StorageSettings(options=place[1], timeout_s=60, retries=2))


def race(place: tuple[str, dict[str, str]], me: int, gate: Any, results: Any) -> None:
    storage = opened(place)
    storage.exists("warm")
    for turn in range(TURNS):
        gate.wait(timeout=60)
        if storage.put_if_absent(f"_delta_log/{turn}.json", b"%d" % me * 500):
            results.put((turn, me))


def test_of_racing_processes_exactly_one_wins(place: tuple[str, dict[str, str]]) -> None:
    fork = multiprocessing.get_context("fork")
    gate, results = fork.Barrier(3), fork.SimpleQueue()
    racers = [fork.Process(target=race, args=(place, me, gate, results)) for me in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    winners = dict(results.get() for _ in range(TURNS))
    assert results.empty()
    assert sorted(winners) == list(range(TURNS))
    storage = opened(place)
    for turn, me in winners.items():
        assert storage.read(f"_delta_log/{turn}.json") == b"%d" % me * 500


def in_forked_child(work: Callable[[], None]) -> None:
    """Run in a fork of this process and of its threads' locks; it must end well and in time."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a request that waits forever ends here
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_uses_the_storages_of_its_parent(place: tuple[str, dict[str, str]]) -> None:
    storage = opened(place)
    storage.put("before", b"parent")

    def work() -> None:
        assert storage.read("before") == b"parent"
        assert storage.put_if_absent("_delta_log/0.json", b"child")
        assert not opened(place).put_if_absent("_delta_log/0.json", b"child again")
        with storage.writer("streamed") as sink:
            sink.write(b"x" * 10_000_000)
        with storage.open_input("streamed") as file:
            assert len(file.read()) == 10_000_000
        with pytest.raises(FileNotFoundError):
            storage.read("nothing")
        in_forked_child(lambda: storage.put("grandchild", b"1"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: storage.put(f"t/{number}", b""), range(8)))

    in_forked_child(work)
    assert storage.read("_delta_log/0.json") == b"child"
    assert storage.exists("grandchild")
    assert len(list(storage.list("t/"))) == 8
    storage.put("after", b"parent")


def test_a_fork_in_the_midst_of_requests_of_other_threads_is_safe(
    place: tuple[str, dict[str, str]],
) -> None:
    storage = opened(place)
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(storage.put, f"busy/{number}", b"1") for number in range(40)]
        for number in range(3):
            in_forked_child(lambda name=f"child/{number}": storage.put(name, b"2"))  # type: ignore[misc]
        for each in busy:
            each.result()
    assert len(list(storage.list("child/"))) == 3
    assert len(list(storage.list("busy/"))) == 40


def test_forked_processes_end_without_a_complaint(
    s3_location: str, s3_options: dict[str, str]
) -> None:
    place = (s3_location, s3_options)
    code = (
        "import multiprocessing, sys\n"
        "from tests.storage.test_processes import opened\n"
        f"place = {place!r}\n"
        "storage = opened(place)\n"
        "storage.put('a', b'1')\n"
        "def read(name): return storage.read(name)\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    print(pool.map(read, ['a', 'a']))\n"
        "import os\n"
        "child = os.fork()\n"
        "storage.put(f'end/{child != 0}', b'')\n"
        "if child == 0: sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "[b'1', b'1']\n0\n"


def test_a_process_killed_while_it_writes_leaves_nothing_visible(
    place: tuple[str, dict[str, str]],
) -> None:
    storage = opened(place)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with storage.writer("half") as sink:
            sink.write(b"x" * 20_000_000)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not storage.exists("half")
    assert list(storage.list()) == []
