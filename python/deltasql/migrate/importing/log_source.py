"""Read and parse a log, in this process or on Spark executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deltasql.exceptions import TxnLogEngineError
from deltasql.mirror.log.read import read_commits, stream_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.load_log import ParsedCommit
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import StateStream
    from deltasql.storage import Storage


class LogSource(Protocol):
    """The commits and states of one log."""

    def commits(self, first: int, last: int) -> Iterator[ParsedCommit]:
        """Yield the commits first..last."""

    def state(self, version: int) -> StateStream:
        """Return the state at a version, with its files in batches."""


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A log that is read in this process."""

    storage: Storage
    listing: LogListing

    def commits(self, first: int, last: int) -> Iterator[ParsedCommit]:
        return read_commits(self.storage, self.listing, first, last)

    def state(self, version: int) -> StateStream:
        return stream_state(self.storage, version, listing=self.listing)


def open_log(
    storage: Storage, listing: LogListing, settings: StorageSettings, engine: object = None
) -> LogSource:
    """Open a log with an engine: None, 'auto', 'duckdb', 'spark' or a Spark session."""
    if engine in (None, "auto", "duckdb"):
        return LocalLog(storage, listing)
    if isinstance(engine, str) and engine != "spark":
        raise TxnLogEngineError(
            f"there is no engine called {engine!r}", engine=engine, help="Use 'duckdb' or 'spark'."
        )
    from deltasql.migrate.importing.spark_log import SparkLog

    return SparkLog(None if engine == "spark" else engine, storage, listing, settings)
