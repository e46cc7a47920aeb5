"""The queue of writers to a SQLite file is fair and bounded; commits are safe without it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.interrupts import interrupted

import deltasql
from deltasql.exceptions import StoreBusyError
from deltasql.storage import platform
from deltasql.store.sqlite import queue as sqlite_queue
from deltasql.store.sqlite.dialect import SqliteDialect, SqliteSession, _SessionContext
from deltasql.store.sqlite.queue import WriteQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri

LONG_S, SHORT_S = 60.0, 0.05
FORK = get_context("fork")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"{tmp_path}/meta.db"


def queue_on(database: str, timeout_s: float = LONG_S) -> WriteQueue:
    """Return a queue that behaves as in another process: each queue locks its own open files."""
    return WriteQueue(database, timeout_s)


@contextmanager
def write_lock(queue: WriteQueue) -> Iterator[None]:
    try:
        queue.acquire()
        yield
    finally:
        queue.release()


def is_locked(path: str) -> bool:
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def wait_until_locked(path: str) -> None:
    while not is_locked(path):
        pass


def _hold(database: str, has_turn: Any, may_go: Any) -> None:
    with write_lock(queue_on(database)):
        has_turn.set()
        may_go.wait(LONG_S)


@contextmanager
def lock_in_process(database: str) -> Iterator[tuple[int, Any]]:
    """Hold the writer lock in another process; yield its pid and the event that ends it."""
    has_turn, may_go = FORK.Event(), FORK.Event()
    process = FORK.Process(target=_hold, args=(database, has_turn, may_go))
    process.start()
    try:
        assert has_turn.wait(LONG_S)
        assert process.pid is not None
        yield process.pid, may_go
    finally:
        process.kill()
        process.join()


def suspend(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


@pytest.mark.parametrize("others", ["process", "thread"])
def test_writer_does_not_overtake_a_waiting_writer(database: str, others: str) -> None:
    """Even if it starts its next transaction at once."""
    first, order = queue_on(database), []
    second = first if others == "thread" else queue_on(database)

    def write() -> None:
        with write_lock(second):
            order.append("waiting")

    for _ in range(5):
        with write_lock(first):
            waiting = threading.Thread(target=write)
            waiting.start()
            if others == "process":
                wait_until_locked(f"{database}-queue")
            else:
                while second._next_thread.acquire(blocking=False):
                    second._next_thread.release()
        with write_lock(first):
            order.append("again")
        waiting.join()
    assert order == ["waiting", "again"] * 5


def test_writer_leaves_the_queue_when_it_gets_the_writer_lock(database: str) -> None:
    with write_lock(queue_on(database)):
        assert is_locked(f"{database}-writer")
        assert not is_locked(f"{database}-queue")
    assert not is_locked(f"{database}-writer")


def test_suspended_waiter_does_not_block_other_writers(database: str) -> None:
    mine = queue_on(database)
    with write_lock(mine):
        process = FORK.Process(target=_hold, args=(database, FORK.Event(), FORK.Event()))
        process.start()
        wait_until_locked(f"{database}-queue")
        assert process.pid is not None
        suspend(process.pid)
    try:
        with write_lock(mine):
            assert is_locked(
                f"{database}-queue"
            )  # the suspended process keeps its place in the queue
    finally:
        process.kill()
        process.join()


def test_timeout_error_names_the_process_that_holds_the_writer_lock(database: str) -> None:
    with lock_in_process(database) as (pid, may_go):
        suspend(pid)
        named = rf"within 50 ms: process {pid} on {os.uname().nodename} holds it"
        with pytest.raises(StoreBusyError, match=named), write_lock(queue_on(database, SHORT_S)):
            pass
        assert not is_locked(f"{database}-queue")
        os.kill(pid, signal.SIGCONT)
        may_go.set()
        with write_lock(queue_on(database)):
            pass


def test_killed_writer_does_not_block_other_writers(database: str) -> None:
    with lock_in_process(database) as (pid, _):
        os.kill(pid, signal.SIGKILL)
        with write_lock(queue_on(database)):
            pass


def test_thread_that_waits_too_long_for_another_thread_gets_store_busy(database: str) -> None:
    queue = queue_on(database, SHORT_S)

    def wait() -> None:
        with write_lock(queue):
            pass

    named = f"process {os.getpid()} on"
    with ThreadPoolExecutor(1) as other, write_lock(queue):
        with pytest.raises(StoreBusyError, match=named):
            other.submit(wait).result()
        assert is_locked(f"{database}-writer")  # this thread still holds the lock
    wait()


def test_thread_waits_until_the_transaction_of_another_thread_ends(database: str) -> None:
    queue, order = queue_on(database), []
    starting = threading.Barrier(2)

    def write() -> None:
        starting.wait(LONG_S)
        with write_lock(queue):
            order.append("second")

    with ThreadPoolExecutor(1) as other:
        with write_lock(queue):
            waiting = other.submit(write)
            starting.wait(LONG_S)
            order.append("first")
        waiting.result(LONG_S)
    assert order == ["first", "second"]


def test_forked_process_does_not_share_the_writer_lock_of_its_parent(database: str) -> None:
    queue = queue_on(database, SHORT_S)
    with write_lock(queue):
        assert _exit_code(_expect_timeout, queue, os.getpid()) == 0
        assert is_locked(f"{database}-writer")
    assert _exit_code(_take_turn, queue) == 0


def _exit_code(work: Any, *args: Any) -> int | None:
    child = FORK.Process(target=work, args=args)
    child.start()
    child.join(LONG_S)
    return child.exitcode


def _expect_timeout(queue: WriteQueue, holder: int) -> None:
    with pytest.raises(StoreBusyError, match=f"process {holder} on"), write_lock(queue):
        pass


def _take_turn(queue: WriteQueue) -> None:
    with write_lock(queue):
        pass


def test_close_keeps_the_lock_files_open_while_a_thread_writes(database: str) -> None:
    """Another file could reuse the descriptor of a closed one."""
    queue = queue_on(database)
    with ThreadPoolExecutor(1) as other, write_lock(queue):
        other.submit(queue.close).result()
        assert queue._writer is not None
    queue.close()
    assert queue._writer is None
    with write_lock(queue):
        assert is_locked(f"{database}-writer")


@pytest.mark.parametrize("content", [b"", b"\0" * 32, b"12", b"\xff\xfe host\n"])
def test_unreadable_holder_name_still_raises_store_busy(database: str, content: bytes) -> None:
    path = Path(f"{database}-writer")
    path.write_bytes(content)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(StoreBusyError, match="process"),
            write_lock(queue_on(database, SHORT_S)),
        ):
            pass


def test_commit_succeeds_when_queue_file_cannot_be_created(sqlite_uri: DeltaSqlUri) -> None:
    for kind in ("queue", "writer"):
        Path(f"{sqlite_uri.database}-{kind}").mkdir(parents=True)
    with deltasql.connect(sqlite_uri, create=True) as catalog:
        catalog.create_table("sales", pa.schema([("id", pa.int64())]))
        with catalog.begin() as tx:
            tx.write("sales", pa.table({"id": [1]}))
        assert tx.versions == {"sales": 1}


def test_commit_succeeds_when_the_holder_name_cannot_be_written(database: str) -> None:
    assert _exit_code(_lock_without_free_space, database) == 0


def _lock_without_free_space(database: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with write_lock(queue_on(database)):
        assert is_locked(f"{database}-writer")


@pytest.mark.parametrize("ends", ["commit", "rollback", "left", "failed"])
def test_next_thread_can_write_however_a_session_ends(sqlite_uri: DeltaSqlUri, ends: str) -> None:
    with deltasql.connect(sqlite_uri, create=True, store={"busy_timeout_ms": 20_000}) as catalog:
        with (
            contextlib.suppress(sqlite3.OperationalError),
            catalog.store.session() as session,
        ):
            session.begin()
            if ends == "failed":
                session.script("NONSENSE")
            elif ends != "left":
                getattr(session, ends)()
        with ThreadPoolExecutor(1) as other:
            other.submit(catalog.create_namespace, "other").result(timeout=10)


@pytest.mark.parametrize("ends", ["commit", "rollback", "left"])
def test_interrupt_never_blocks_other_writers(sqlite_uri: DeltaSqlUri, ends: str) -> None:
    with (
        deltasql.connect(sqlite_uri, create=True, store={"busy_timeout_ms": 60_000}) as catalog,
        ThreadPoolExecutor(1) as other,
    ):

        def write() -> None:
            with dialect.session() as session:
                session.begin()
                if ends != "left":
                    getattr(session, ends)()

        dialect = catalog.store.dialect
        assert isinstance(dialect, SqliteDialect)
        # WriteQueue.close is not interrupted: the garbage collector may call it on the queue of an
        # earlier test.
        of_queue = (WriteQueue.acquire, WriteQueue.release, WriteQueue._lock_files)
        functions = (sqlite_queue._lock, platform.unlock, platform.open_lock_file)
        for at in itertools.count():
            try:
                with interrupted(at, *of_queue, *functions, SqliteSession, _SessionContext):  # type: ignore[arg-type]
                    write()
                break
            except KeyboardInterrupt:
                pass
            other.submit(write).result(timeout=10)
            write()
            for kind in ("queue", "writer"):
                assert not is_locked(f"{sqlite_uri.database}-{kind}")
        assert at > 30
