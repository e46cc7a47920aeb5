"""A stream whose batches have a maximum size. PySpark supports this since 4.2."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from deltasql.api.stream.planner import MAX_FILES, Budget
from deltasql.api.stream.rules import Offset
from deltasql.spark.source.stream import TableStream

if TYPE_CHECKING:
    from deltasql.spark.source.options import SourceOptions
    from deltasql.spark.source.read import Reading


class LimitedStream(TableStream, SupportsTriggerAvailableNow):
    """A stream with the options `maxFilesPerTrigger` and `maxBytesPerTrigger`."""

    def __init__(self, options: SourceOptions, reading: Reading, version: int) -> None:
        super().__init__(options, reading, version)
        self._last: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.options.number("maxFilesPerTrigger") or MAX_FILES)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._planner().latest_version()

    def reportLatestOffset(self) -> dict[str, Any]:
        return asdict(self._planner().after_head())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return asdict(self._planner().next_offset(Offset(**start), self._budget(limit), self._last))

    def _budget(self, limit: ReadLimit) -> Budget:
        if isinstance(limit, ReadAllAvailable):
            return Budget(None, None)
        size = self.options.number("maxBytesPerTrigger")
        if isinstance(limit, ReadMaxFiles):
            return Budget(limit.max_files, size)
        return Budget(None, limit.max_bytes if isinstance(limit, ReadMaxBytes) else size)
