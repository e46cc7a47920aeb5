"""A session that logs each of its statements with its time, for `deltasql -v`."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql import telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from deltasql._core import IndexedFiles, LogRows
    from deltasql.store.dialect import Row, Session

_log = logging.getLogger(__name__)


def logs_statements() -> bool:
    """Return whether statements are to be logged."""
    return _log.isEnabledFor(logging.DEBUG)


@contextmanager
def logged(sessions: AbstractContextManager[Session]) -> Iterator[Session]:
    """Open a session and log its statements."""
    with sessions as session:
        yield LoggedSession(session)


@contextmanager
def timed_statement(name: str) -> Iterator[dict[str, Any]]:
    """Log a statement with the time of the block, which may add fields to the log line."""
    started, fields = time.perf_counter(), dict[str, Any]()
    yield fields
    ms = round((time.perf_counter() - started) * 1000, 1)
    telemetry.log(_log, logging.DEBUG, "statement", name=name, **fields, ms=ms)


class LoggedSession:
    """Runs statements on another session and logs them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def query(self, name: str, /, **params: Any) -> list[Row]:
        with timed_statement(name) as fields:
            rows = self._session.query(name, **params)
            fields["rows"] = len(rows)
        return rows

    def execute(self, name: str, /, **params: Any) -> int:
        with timed_statement(name) as fields:
            changed = self._session.execute(name, **params)
            if changed >= 0:  # not known in a batch
                fields["rows"] = changed
        return changed

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        with timed_statement(name) as fields:
            self._session.insert(name, rows)
            fields["rows"] = len(rows)

    def insert_files(
        self, files: IndexedFiles, table_id: int, partition_ids: list[int], version: int
    ) -> None:
        with timed_statement("insert_add_file") as fields:
            self._session.insert_files(files, table_id, partition_ids, version)
            fields["rows"] = len(files)

    def insert_log(self, name: str, rows: LogRows) -> None:
        with timed_statement(name):
            self._session.insert_log(name, rows)

    def begin(self, *, is_bulk: bool = False) -> None:
        with timed_statement("BEGIN"):
            self._session.begin(is_bulk=is_bulk)

    def commit(self) -> None:
        with timed_statement("COMMIT"):
            self._session.commit()

    def rollback(self) -> None:
        self._session.rollback()

    def script(self, text: str) -> None:
        with timed_statement("script"):
            self._session.script(text)

    @contextmanager
    def batch(self) -> Iterator[None]:
        with timed_statement("batch"), self._session.batch():
            yield
