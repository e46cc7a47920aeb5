"""Background jobs: work that is too slow for a request runs in a thread."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from deltasql.exceptions import TxnLogError, redact
from deltasql.model.progress import OnProgress, Progress
from deltasql.store.audit import acting_as

_log = logging.getLogger(__name__)
_MAX_JOBS = 50


@dataclass(frozen=True, slots=True)
class Undo:
    """A form that undoes a job."""

    action: str
    """The URL path to which the form is sent."""
    fields: dict[str, str]
    note: str
    """The text after the button, which says what the form does."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job, and how to undo it if that is possible."""

    outcome: list[tuple[str, str]] = field(default_factory=list)
    undo: Undo | None = None
    notes: list[str] = field(default_factory=list)
    problem: str | None = None
    """What is wrong, if the job ended and its result must not be used."""
    opens: str | None = None
    """The table to link to."""
    page: str | None = None
    """The URL path to go back to, if it is not the page that started the job."""


Work: TypeAlias = Callable[[OnProgress], Done]


@dataclass(slots=True)
class Job:
    """A background job: its progress, and its outcome or error."""

    job_id: str
    title: str
    table: str
    page: str
    """The URL path of the page that started the job."""
    user: str
    """Who started the job; the audit log names this user."""
    command: str
    """The `deltasql` command that does the same as this job."""
    started_at: datetime
    ended_at: datetime | None = None
    progress: Progress | None = None
    done: Done = field(default_factory=Done)
    error: str | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def state(self) -> str:
        """`running`, `done` or `failed`."""
        if self.is_running:
            return "running"
        return "failed" if self.error else "done"

    @property
    def seconds(self) -> float:
        return ((self.ended_at or datetime.now(UTC)) - self.started_at).total_seconds()


class Jobs:
    """The jobs of one console: all running jobs, and the latest finished ones."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._guard = threading.Lock()

    def start(
        self, title: str, table: str, page: str, work: Work, *, user: str, command: str
    ) -> Job:
        """Start a job; if a job of the same page is still running, return that job instead.

        The running job may do different work, so the caller must compare its title.
        """
        with self._guard:
            for known in self._jobs.values():
                if known.page == page and known.is_running:
                    return known
            job = Job(
                secrets.token_urlsafe(9), title, table, page, user, command, datetime.now(UTC)
            )
            self._jobs[job.job_id] = job
            ended = [each for each in self._jobs.values() if not each.is_running]
            for old in ended[: max(0, len(self._jobs) - _MAX_JOBS)]:
                del self._jobs[old.job_id]
            thread = threading.Thread(target=self._run, args=(job, work))
            self._threads[job.job_id] = thread
            thread.start()
        return job

    def finish(self) -> None:
        """Wait until all running jobs have ended."""
        with self._guard:
            running = list(self._threads.values())
        for thread in running:
            thread.join()

    def get(self, job_id: str) -> Job | None:
        """Return the job with this id, or None."""
        with self._guard:
            return self._jobs.get(job_id)

    def latest(self, table: str | None = None) -> list[Job]:
        """Return all jobs, or those of one table, newest first."""
        with self._guard:
            found = [each for each in self._jobs.values() if table in (None, each.table)]
        return found[::-1]

    def _run(self, job: Job, work: Work) -> None:
        def report(progress: Progress) -> None:
            job.progress = progress

        try:
            with acting_as(job.user, job.title.lower()):
                job.done = work(report)
            job.error = job.done.problem
            job.page = job.done.page or job.page
        except TxnLogError as error:
            job.error = error.full_message
        except Exception as error:
            _log.exception("%s of %s failed", job.title, job.table)
            job.error = redact(f"{type(error).__name__}: {error}")
        finally:
            job.ended_at = datetime.now(UTC)
            with self._guard:
                self._threads.pop(job.job_id, None)
