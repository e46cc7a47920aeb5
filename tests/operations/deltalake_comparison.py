"""Run the same call on a table of deltalake and on one of deltasql, and compare the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError

import deltasql


@dataclass(frozen=True)
class Twins:
    """A table of deltalake and one of deltasql that get the same calls."""

    path: str
    uri: str
    location: str

    def write(self, data: Callable[[], object] | object, **options: Any) -> BaseException | None:
        """Write to both and return our error; assert that both writes fail or both succeed."""
        rows = data if callable(data) else lambda: data
        theirs = _outcome(lambda: deltalake.write_deltalake(self.path, rows(), **options))
        ours = _outcome(lambda: deltasql.write_deltalake(self.uri, rows(), **options))
        assert (theirs is None) == (ours is None), (theirs, ours)
        if isinstance(theirs, DeltaError):
            assert isinstance(ours, type(theirs)), (theirs, ours)
        return ours

    def assert_alike(self) -> None:
        """Compare versions, rows, schemas and the commit info of the last commit."""
        theirs, ours = deltalake.DeltaTable(self.path), deltasql.DeltaTable(self.uri)
        mirror = deltalake.DeltaTable(self.location)
        assert ours.version() == theirs.version() == mirror.version()
        assert ours.schema() == theirs.schema() == mirror.schema()
        assert ours.metadata().partition_columns == theirs.metadata().partition_columns
        assert rows(ours) == rows(theirs) == rows(mirror)
        assert last_commit(ours) == last_commit(theirs) == last_commit(mirror)


def rows(table: deltalake.DeltaTable) -> list[str]:
    """Return all rows, sorted."""
    return sorted(map(repr, table.to_pyarrow_table().to_pylist()))


def last_commit(table: deltalake.DeltaTable) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return operation, parameters and metrics of the last commit, without times and locations."""
    last = table.history(1)[0]
    metrics = dict(last.get("operationMetrics", {}))
    metrics.pop("execution_time_ms", None)
    parameters = dict(last["operationParameters"])
    for name in ("metadata", "protocol", "location"):
        parameters.pop(name, None)
    return last["operation"], parameters, metrics


def properties(table: deltalake.DeltaTable) -> dict[str, str]:
    """Return the table properties."""
    return dict(table.metadata().configuration)


def _outcome(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as error:  # any error: the other side must fail too
        return error
    return None
