"""Counts the SQL statements that a block of code sends, on every backend."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from deltasql.store.duckdb import DuckdbDialect
from deltasql.store.postgres.dialect import PostgresDialect
from deltasql.store.sqlite import dialect as sqlite
from deltasql.store.sqlite.dialect import SqliteDialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DIALECTS = (SqliteDialect, DuckdbDialect, PostgresDialect)
_SENT = ("query", "execute", "insert", "insert_files", "insert_log", "begin", "commit", "script")


class Statements(list[str]):
    """The names of statements, in the order in which they were sent."""

    def counts_by_statement(self) -> dict[str, int]:
        """Return how often each statement was sent."""
        return dict(sorted(Counter(self).items()))


class _Counted:
    """A session that records the statements sent through it."""

    def __init__(self, session: Any, sent: Statements) -> None:
        self._session, self._sent = session, sent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name not in _SENT:
            return found

        def counted(*args: Any, **params: Any) -> Any:
            self._sent.append(args[0] if args and isinstance(args[0], str) else name)
            return found(*args, **params)

        return counted


@contextmanager
def counting() -> Iterator[Statements]:
    """Record every statement of every store while the block runs, including connecting."""
    sent = Statements()
    with _patched(sent):
        yield sent


@contextmanager
def _patched(sent: Statements) -> Iterator[None]:
    patches = [patch.object(sqlite, "chunks", _counted_chunks(sent))]
    for dialect in _DIALECTS:
        patches += [
            patch.object(dialect, "session", _counted_session(dialect, sent)),
            patch.object(dialect, "arrow", _counted_call(dialect, "arrow", sent)),
        ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _counted_session(dialect: Any, sent: Statements) -> Any:
    session = dialect.session

    @contextmanager
    def counted(self: Any) -> Iterator[_Counted]:
        with session(self) as borrowed:
            yield _Counted(borrowed, sent)

    return counted


def _counted_call(dialect: Any, method: str, sent: Statements) -> Any:
    call = getattr(dialect, method)

    def counted(self: Any, name: str, /, **params: Any) -> Any:
        sent.append(name)
        return call(self, name, **params)

    return counted


def _counted_chunks(sent: Statements) -> Any:
    """Count the pieces of a long list: SQLite sends one more statement for each after the first."""
    split = sqlite.chunks

    def counted(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
        for number, piece in enumerate(split(items, size)):
            if number:
                sent.append("(another piece of a list)")
            yield piece

    return counted
