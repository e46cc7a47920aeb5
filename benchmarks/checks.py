"""The results of a run, and performance targets that are checked against them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Check:
    """One target: the measured value and the required value."""

    promise: str
    measured: float
    wanted: float
    at_most: bool
    detail: str
    unit: str = "×"

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted


class Results:
    """The results of one run, read from its JSON files."""

    def __init__(self, folder: Path) -> None:
        self.documents: dict[str, dict[str, Any]] = {
            path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))
        }

    def rows(self, scenario: str, case: str | None = None) -> list[dict[str, Any]]:
        """Return the results of a scenario, or of one of its cases."""
        found = self.documents.get(scenario, {}).get("results", [])
        return [r for r in found if case is None or r["case"] == case]

    def sizes(self, scenario: str, case: str) -> list[int]:
        """Return the sizes for which a case was measured."""
        return sorted({r["size"] for r in self.rows(scenario, case)})

    def row(self, scenario: str, contender: str, case: str, size: int) -> dict[str, Any] | None:
        """Return one result, or None if it was not measured."""
        for row in self.rows(scenario, case):
            if row["contender"] == contender and row["size"] == size:
                return row
        return None

    def value(self, scenario: str, contender: str, case: str, size: int) -> float | None:
        """Return the median of one result."""
        row = self.row(scenario, contender, case, size)
        return None if row is None else float(row["value"])


def faster(promise: str, ours: float | None, other: float | None, bound: float) -> Iterator[Check]:
    """Check that deltasql is at least `bound` times as fast as another system."""
    if ours and other:
        detail = f"{ours:,.3g} against {other:,.3g} ms"
        yield Check(promise, other / ours, bound, at_most=False, detail=detail)


def slower(
    promise: str, ours: float | None, other: float | None, bound: float, unit: str = "ms"
) -> Iterator[Check]:
    """Check that the value of deltasql is at most `bound` times that of another system."""
    if ours and other:
        detail = f"{ours:,.3g} against {other:,.3g} {unit}"
        yield Check(promise, ours / other, bound, at_most=True, detail=detail)
