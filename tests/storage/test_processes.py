"""Storages in several processes: races, forks, and a process killed during a write."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from deltasql.config import StorageSettings
from deltasql.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TURNS = 8
# A forked child cannot use an object store if its parent has used one, as this process may have.
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A location and its options, to pass to another process."""
    if request.param == "local":
        return str(tmp_path / "lake"), {}
    return request.getfixturevalue("s3_location"), request.getfixturevalue("s3_options")


def opened(place: tuple[str, dict[str, str]]) -> Storage:
    return open_storage(place[0], StorageSettings(options=place[1], timeout_s=60, retries=2))


def race(place: tuple[str, dict[str, str]], me: int, barrier: Any, results: Any) -> None:
    storage = opened(place)
    storage.exists("warm")
    for turn in range(TURNS):
        barrier.wait(timeout=60)
        if storage.put_if_absent(f"_delta_log/{turn}.json", b"%d" % me * 500):
            results.put((turn, me))


def test_exactly_one_of_racing_processes_wins_a_conditional_put(
    place: tuple[str, dict[str, str]],
) -> None:
    barrier, results = SPAWN.Barrier(3), SPAWN.SimpleQueue()
    racers = [SPAWN.Process(target=race, args=(place, me, barrier, results)) for me in range(3)]
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
    """Run a function in a forked child, with a time limit; it must succeed."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a request that never returns
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_forked_child_uses_local_storage_of_its_parent(tmp_path: Path) -> None:
    storage = opened((str(tmp_path), {}))
    storage.put("before", b"parent")

    def work() -> None:
        assert storage.read("before") == b"parent"
        assert storage.put_if_absent("_delta_log/0.json", b"child")
        with storage.writer("streamed") as sink:
            sink.write(b"x" * 10_000_000)
        in_forked_child(lambda: storage.put("grandchild", b"1"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: storage.put(f"t/{number}", b""), range(8)))

    in_forked_child(work)
    assert storage.read("_delta_log/0.json") == b"child"
    assert storage.exists("grandchild")
    assert len(list(storage.list("t/"))) == 8


def test_fork_during_requests_of_other_threads_is_safe_on_local_disk(tmp_path: Path) -> None:
    storage = opened((str(tmp_path), {}))
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(storage.put, f"busy/{number}", b"1") for number in range(40)]
        for number in range(3):
            in_forked_child(lambda name=f"child/{number}": storage.put(name, b"2"))  # type: ignore[misc]
        for each in busy:
            each.result()
    assert len(list(storage.list("child/"))) == 3
    assert len(list(storage.list("busy/"))) == 40


def in_new_process(code: str, place: tuple[str, dict[str, str]]) -> str:
    """Run code in an interpreter that has not used an object store yet; return its output."""
    start = (
        "import multiprocessing, os, sys\n"
        "from tests.storage.test_processes import in_forked_child, opened\n"
        f"storage = opened({place!r})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_forked_child_that_is_first_to_use_an_object_store_works(
    s3_location: str, s3_options: dict[str, str]
) -> None:
    """Workers of PySpark, gunicorn and Airflow are such processes."""
    code = """
        def write(number):
            storage.put(f"{number}", b"1")
            with storage.writer(f"streamed/{number}") as sink:
                sink.write(b"x" * 10_000_000)
            in_forked_child(lambda: None)
            return storage.read(f"{number}")

        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(write, range(4)))
        print(len(list(storage.list())))
    """
    assert in_new_process(code, (s3_location, s3_options)) == f"{[b'1'] * 4}\n8\n"


def test_forked_child_of_an_object_store_user_gets_an_error(
    s3_location: str, s3_options: dict[str, str]
) -> None:
    code = """
        from contextlib import ExitStack
        from deltasql.exceptions import TxnLogStorageError

        def refused(request):
            try:
                request()
            except TxnLogStorageError as error:
                assert "forked" in str(error) and "spawn or forkserver" in str(error), error
            else:
                raise AssertionError("not refused")

        def work():
            refused(lambda: storage.read("a"))
            refused(lambda: opened(("s3://elsewhere", {})).put("a", b""))
            refused(lambda: sink.write(b"1"))
            refused(lambda: list(listing))
            in_forked_child(lambda: refused(lambda: storage.exists("a")))

        storage.put("a", b"1")
        listing = storage.list()
        next(listing)
        with storage.writer("streamed") as sink:
            sink.write(b"x" * 10_000_000)
            in_forked_child(work)
            if os.fork() == 0:
                sys.exit(0)  # ends the block, and the process, without waiting
            assert os.wait()[1] == 0
        print(storage.read("a"), storage.size("streamed"))
    """
    assert in_new_process(code, (s3_location, s3_options)) == "b'1' 10000000\n"


def write_half(place: tuple[str, dict[str, str]]) -> None:
    with opened(place).writer("half") as sink:
        sink.write(b"x" * 20_000_000)
        os.kill(os.getpid(), signal.SIGKILL)


def test_process_killed_during_a_write_leaves_no_visible_file(
    place: tuple[str, dict[str, str]],
) -> None:
    writing = SPAWN.Process(target=write_half, args=(place,))
    writing.start()
    writing.join(60)
    assert writing.exitcode == -signal.SIGKILL
    storage = opened(place)
    assert not storage.exists("half")
    assert list(storage.list()) == []
