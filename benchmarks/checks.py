"""The results of a run, and promises that are checked against them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: what was measured, what is wanted, and whether it holds."""

    promise: str
    measured: float
    wanted: float
    at_most: bool
    detail: str
    unit: str = "×"

    @property
    def met(self) -> bool:
        """Tell whether the promise holds."""
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted


class Results:
    """The results of one run, read from its JSON files."""

    def __init__(self, folder: Path) -> None:
        self.documents: dict[str, dict[str, Any]] = {
            path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))
        }

    def rows(self, scenario: str, case: str | None = None) -> list[dict[str, Any]]:
        """Return the results of a scenario, or of one case of it."""
        found = self.documents.get(scenario, {}).get("results", [])
        return [r for r in found if case is None or r["case"] == case]

    def sizes(self, scenario: str, case: str) -> list[int]:
        """Return the sizes a case was measured at."""
        return sorted({r["size"] for r in self.rows(scenario, case)})

    def row(self, scenario: str, contender: str, case: str, size: int) -> dict[str, Any] | None:
        """Return one result, or None where it was not measured."""
        for row in self.rows(scenario, case):
            if row["contender"] == contender and row["size"] == size:
                return row
        return None

    def value(self, scenario: str, contender: str, case: str, size: int) -> float | None:
        """Return one result's median."""
        row = self.row(scenario, contender, case, size)
        return None if row is None else float(row["value"])


def faster(promise: str, ours: float | None, other: float | None, bound: float) -> Iterator[Check]:
    """Check that ours takes so many times less than another."""
    if ours and other:
        detail = f"{ours:,.3g} against {other:,.3g} ms"
        yield Check(promise, other / ours, bound, at_most=False, detail=detail)


def slower(
    promise: str, ours: float | None, other: float | None, bound: float, unit: str = "ms"
) -> Iterator[Check]:
    """Check that ours takes at most so many times what another takes."""
    if ours and other:
        detail = f"{ours:,.3g} against {other:,.3g} {unit}"
        yield Check(promise, ours / other, bound, at_most=True, detail=detail)
