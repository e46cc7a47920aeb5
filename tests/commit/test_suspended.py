"""A writer is suspended while it holds locks: others wait at most their timeouts."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from deltasql.exceptions import StoreBusyError
from deltasql.phases import hooked
from tests.commit.support import PROCESSES, SCHEMA, audit, file, live, open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql import AddFile, Catalog
    from deltasql.uri import DeltaSqlUri

LIMITS = {"busy_timeout_ms": 500, "lock_timeout_ms": 400, "idle_transaction_timeout_ms": 600}
PATIENT = {**LIMITS, "busy_timeout_ms": 30_000}


def commit_suspended(uri: DeltaSqlUri, phase: str) -> None:
    """Commit two files; suspend this process when it first reaches the phase."""
    suspensions = iter([signal.SIGSTOP])

    def suspend(reached: str) -> None:
        if reached == phase and (how := next(suspensions, None)):
            os.kill(os.getpid(), how)

    with open_catalog(uri, store=PATIENT) as catalog, hooked(suspend):
        commit(catalog, [file("suspended1"), file("suspended2")])


def commit(catalog: Catalog, files: Sequence[AddFile]) -> None:
    with catalog.begin() as tx:
        tx.stage_table("t", list(files))


@contextmanager
def suspended_writer(uri: DeltaSqlUri, phase: str) -> Iterator[Any]:
    process = PROCESSES.Process(target=commit_suspended, args=(uri, phase))
    process.start()
    try:
        assert os.WIFSTOPPED(_wait_until_stopped(process.pid))
        yield process
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.join(30)
    assert process.exitcode == 0


def _wait_until_stopped(pid: int) -> int:
    # The process is a child of the fork server, so this process cannot wait() for it. Read its
    # state from /proc instead.
    while True:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return 0x7F
        time.sleep(0.005)


@pytest.mark.parametrize("phase", ["locked", "committing"])
def test_suspended_postgres_writer_blocks_no_other_and_commits_after_resuming(
    postgres_uri: DeltaSqlUri, phase: str
) -> None:
    with open_catalog(postgres_uri, store=LIMITS) as catalog:
        catalog.create_table("t", SCHEMA)
        commit(catalog, [file("before")])
        with suspended_writer(postgres_uri, phase):
            began = time.monotonic()
            commit(catalog, [file("other")])
            assert time.monotonic() - began < 5
        # The resumed writer found its transaction aborted and retried: it committed once.
        audit(catalog)
        assert live(catalog) == ["before", "other", "suspended1", "suspended2"]
        assert catalog.table("t").version() == 3


def test_sqlite_error_names_the_suspended_writer(
    sqlite_uri: DeltaSqlUri,
) -> None:
    with open_catalog(sqlite_uri, store=LIMITS) as catalog:
        catalog.create_table("t", SCHEMA)
        with suspended_writer(sqlite_uri, "locked") as process:
            began = time.monotonic()
            with pytest.raises(StoreBusyError, match=f"process {process.pid} .* holds it"):
                commit(catalog, [file("other")])
            assert 0.5 <= time.monotonic() - began < 5
        commit(catalog, [file("other")])
        audit(catalog)
        assert live(catalog) == ["other", "suspended1", "suspended2"]
