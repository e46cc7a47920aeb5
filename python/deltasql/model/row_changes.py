"""How many rows a commit inserted, updated and deleted, read from its operation metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INSERTED = ("num_target_rows_inserted", "num_added_rows")
_UPDATED = ("num_target_rows_updated", "num_updated_rows")
_DELETED = ("num_target_rows_deleted", "num_deleted_rows")
_COPIED = ("num_target_rows_copied", "num_copied_rows")
_REWRITING = frozenset({"OPTIMIZE", "REORG"})


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows that a commit inserted, updated and deleted; None if the metrics lack the number.

    Unchanged rows that were copied to a new file do not count.
    """

    inserted: int | None
    updated: int | None
    deleted: int | None


def row_changes(operation: str | None, metrics: Mapping[str, Any]) -> RowChanges:
    """Read the row changes from a commit's metrics, whose names depend on the writer.

    >>> row_changes("MERGE", {"numOutputRows": "9", "numTargetRowsInserted": "2",
    ...     "numTargetRowsUpdated": "1", "numTargetRowsDeleted": "0", "numTargetRowsCopied": "6"})
    RowChanges(inserted=2, updated=1, deleted=0)
    >>> row_changes("WRITE", {"numOutputRows": "5", "numFiles": "1"})
    RowChanges(inserted=5, updated=None, deleted=None)
    """
    if operation is not None and operation.upper() in _REWRITING:
        return RowChanges(0, 0, 0)
    known = by_snake_case(metrics)
    updated, deleted = first_number(known, _UPDATED), first_number(known, _DELETED)
    return RowChanges(_inserted(operation, known), _to_int(updated), _to_int(deleted))


def by_snake_case(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics by their names in deltalake; Spark writes the same names in camel case.

    >>> by_snake_case({"numOutputRows": "1"})
    {'num_output_rows': '1'}
    """
    return {_BOUNDARY.sub("_", name).lower(): value for name, value in metrics.items()}


def first_number(metrics: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """Return the first of these metrics that is a number; Spark writes numbers as strings."""
    for name in names:
        try:
            return float(metrics[name])
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _inserted(operation: str | None, known: Mapping[str, Any]) -> int | None:
    inserted = first_number(known, _INSERTED)
    if inserted is not None:
        return _to_int(inserted)
    kind = (operation or "").upper()
    if kind in ("UPDATE", "DELETE"):
        return 0
    written = first_number(known, ("num_output_rows",))
    if written is None or kind == "MERGE":
        return None  # the output of a merge includes updated and copied rows
    # Spark also counts the rows that a replaceWhere copied.
    return _to_int(max(0.0, written - (first_number(known, _COPIED) or 0)))


def _to_int(number: float | None) -> int | None:
    return None if number is None else int(number)
