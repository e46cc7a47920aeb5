"""The commitInfo of an operation: its name and parameters, and its metrics."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.operations.table_stage import TableStage


def set_commit_info(
    stage: TableStage,
    operation: str,
    parameters: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Set the operation of the commit; if a commit has several, only the last is recorded."""
    stage.staged.info = replace(
        stage.staged.info,
        operation=operation,
        operation_parameters=dict(parameters or {}),
        operation_metrics=None if metrics is None else dict(metrics),
        extra={**stage.staged.info.extra, **(extra or {})},
    )


class Stopwatch:
    """Measures milliseconds since its creation and since the last lap, for metrics."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def total_ms(self) -> int:
        return int((time.perf_counter() - self._start) * 1000)

    def lap_ms(self) -> int:
        before, self._last = self._last, time.perf_counter()
        return int((self._last - before) * 1000)
