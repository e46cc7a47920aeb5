"""What a check of a table's data found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DataChecks = Literal["files", "counts", "rows"]
"""How far a check goes: the files themselves, what the log tells of their rows, every row."""
KEPT = 1000
_TOLD = {
    "missing": "the file or its deletion vector is gone",
    "unreadable": "it cannot be read",
    "unchecked": "not looked at: too many files beside it cannot be read",
}


@dataclass(frozen=True, slots=True)
class DataDifference:
    """Something that the log tells of a file, or of the rows, and that is not so."""

    path: str | None
    kind: str
    """`missing`, `size`, `unreadable`, `unchecked`, `rows`, `nulls`, `min`, `max` or `row`."""
    column: str | None = None
    told: object = None
    found: object = None

    def __str__(self) -> str:
        if self.kind == "row":
            times = f"{self.found} times, and {self.told} times in the log"
            return f"a row is there {times}: {self.column}"
        if self.kind in _TOLD:
            why = "" if self.found is None else f": {self.found}"
            return f"{self.path}: {_TOLD[self.kind]}{why}"
        where = "" if self.column is None else f" of {self.column}"
        return (
            f"{self.path}: {self.kind}{where}: the log tells {self.told!r}, it has {self.found!r}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain values, for JSON."""
        return {
            "path": self.path,
            "kind": self.kind,
            "column": self.column,
            "told": _plain(self.told),
            "found": _plain(self.found),
        }


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a check of a table's data found; of a kind that is frequent not all are kept."""

    table: str
    files: int
    rows: int | None
    differences: tuple[DataDifference, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    version: int | None = None
    checks: DataChecks = "counts"
    engine: str | None = None
    size_bytes: int = 0
    compared_with: str | None = None
    """Who read the log for the comparison of rows: `deltalake`, `delta-spark` or `replay`."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the data is what the log tells."""
        return not self.differences

    @property
    def total(self) -> int:
        """How many differences there are, kept or not."""
        return sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "table": self.table,
            "version": self.version,
            "ok": self.ok,
            "checks": self.checks,
            "engine": self.engine,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "rows": self.rows,
            "compared_with": self.compared_with,
            "notes": list(self.notes),
            "total": self.total,
            "counts": dict(self.counts),
            "differences": [each.to_dict() for each in self.differences],
        }

    def summary(self) -> str:
        """Return the report as text, one line per difference."""
        at = "" if self.version is None else f" at version {self.version}"
        rows = "" if self.rows is None else f", {many(self.rows, 'row')}"
        seen = (
            "" if self.compared_with is None else f", every row compared with {self.compared_with}"
        )
        what = f"{many(self.files, 'file')} of {many(self.size_bytes, 'byte')}"
        head = f"{self.table}: data{at}: {what}{rows}{seen}"
        state = "ok" if self.ok else many(self.total, "difference")
        lines = [f"{head}: {state}", *self.notes, *map(str, self.differences)]
        if self.total > len(self.differences):
            lines.append(f"… and {self.total - len(self.differences)} more")
        return "\n  ".join(lines)

    __str__ = summary


@dataclass(slots=True)
class Findings:
    """Differences as they are found: all are counted, a bounded number is kept."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: list[DataDifference] = field(default_factory=list)

    def add(self, differences: Iterable[DataDifference]) -> None:
        for each in differences:
            self.counts[each.kind] += 1
            if self.counts[each.kind] <= KEPT:
                self.kept.append(each)

    def count(self, kind: str, more: int) -> None:
        """Count differences that nobody looked at one by one."""
        self.counts[kind] += more

    def has(self, kinds: Sequence[str]) -> bool:
        return any(self.counts[kind] for kind in kinds)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | float | str) else str(value)
