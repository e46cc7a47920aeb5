"""What a commit tells of the operation that made it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.operations.target import TableStage


def set_commit_info(
    target: TableStage,
    operation: str,
    parameters: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Name the operation in the history; of several in one commit the last one is named."""
    target.staged.info = replace(
        target.staged.info,
        operation=operation,
        operation_parameters=dict(parameters or {}),
        operation_metrics=None if metrics is None else dict(metrics),
        extra={**target.staged.info.extra, **(extra or {})},
    )
