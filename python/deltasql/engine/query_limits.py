"""Limits for a user's query, and a way to cancel the query."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interrupt:
    """Cancels a query from another thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self.is_set = False

    def cancel(self) -> None:
        """Cancel the query; call this repeatedly until the query has ended.

        The engine forgets a request that it receives just before it starts the query.
        """
        with self._guard:
            self.is_set = True
            if self._stop is not None:
                self._stop()

    def check(self) -> None:
        """Raise TxnLogEngineError if the query was cancelled."""
        if self.is_set:
            raise TxnLogEngineError("the query was cancelled", engine="duckdb")

    @contextmanager
    def stopping_with(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` if the query is cancelled within the block."""
        self.check()
        with self._guard:
            self._stop = stop
        try:
            yield
        except TxnLogEngineError:
            self.check()
            raise
        finally:
            with self._guard:
                self._stop = None


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits on the values of a result."""

    shorten: int | None = None
    """Limit strings to this many characters, bytes to this many bytes, lists to this many elements.

    This also applies to values inside lists, structs and maps, but not to map keys.
    """
    longest_value: int | None = None
    """Raise TxnLogEngineError for a value with more bytes.

    A list, a struct or a map has the bytes of all the values inside it.
    """
    interrupt: Interrupt | None = None


NO_LIMITS = QueryLimits()
