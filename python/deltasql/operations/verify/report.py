"""The report of a check of a table's data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DataChecks = Literal["files", "counts", "rows"]
"""What is checked: existence and size of files, also statistics of their rows, also every row."""
KEPT = 1000
_TEXTS = {
    "missing": "the file or its deletion vector is missing",
    "unreadable": "the file cannot be read",
    "unchecked": "not checked: too many other files cannot be read",
}


@dataclass(frozen=True, slots=True)
class DataDifference:
    """A difference between the log and a file, or the rows: the values `logged` and `found`."""

    path: str | None
    kind: str
    """`missing`, `size`, `unreadable`, `unchecked`, `rows`, `nulls`, `min`, `max` or `row`."""
    column: str | None = None
    logged: object = None
    found: object = None

    @property
    def told(self) -> object:
        """Deprecated: use `logged`. Removed in 0.3."""
        warnings.warn("told is deprecated: use logged", DeprecationWarning, stacklevel=2)
        return self.logged

    def __str__(self) -> str:
        if self.kind == "row":
            counts = f"{self.found} times in the data and {self.logged} times in the log"
            return f"a row occurs {counts}: {self.column}"
        if self.kind in _TEXTS:
            why = "" if self.found is None else f": {self.found}"
            return f"{self.path}: {_TEXTS[self.kind]}{why}"
        where = "" if self.column is None else f" of {self.column}"
        values = f"the log has {self.logged!r}, the file has {self.found!r}"
        return f"{self.path}: {self.kind}{where}: {values}"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain values, for JSON."""
        return {
            "path": self.path,
            "kind": self.kind,
            "column": self.column,
            "logged": _plain(self.logged),
            "told": _plain(self.logged),  # deprecated: removed in 0.3
            "found": _plain(self.found),
        }


@dataclass(frozen=True, slots=True)
class DataReport:
    """The result of a check of a table's data; it keeps at most 1,000 differences of each kind."""

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
    """The reader of the log in the comparison of rows: `deltalake`, `delta-spark` or `replay`."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the data agrees with the log."""
        return not self.differences

    @property
    def total(self) -> int:
        """The number of differences, kept or not."""
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
    """Collects differences: all are counted, a limited number of each kind is kept."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: list[DataDifference] = field(default_factory=list)

    def add(self, differences: Iterable[DataDifference]) -> None:
        for each in differences:
            self.counts[each.kind] += 1
            if self.counts[each.kind] <= KEPT:
                self.kept.append(each)

    def count(self, kind: str, more: int) -> None:
        """Count more differences of a kind, without keeping them."""
        self.counts[kind] += more

    def has(self, kinds: Sequence[str]) -> bool:
        return any(self.counts[kind] for kind in kinds)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | float | str) else str(value)
