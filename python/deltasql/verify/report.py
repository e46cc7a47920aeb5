"""The results of verification: differences, the report of a log and the report of its data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deltasql.model.counts import many, size_text
from deltasql.model.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DataChecks = Literal["files", "counts", "rows"]
"""What is checked: existence and size of files; "counts" adds row statistics, "rows" every row."""
DATA = "data"  # the source of differences between the log and data files
# Sources that repeat the content of commits.
_DERIVED = ("checkpoint", "crc")
_TEXTS = {
    "missing": "the file or its deletion vector is missing",
    "unreadable": "the file cannot be read",
    "unchecked": "not checked: too many other files cannot be read",
}


@dataclass(frozen=True, slots=True)
class Difference(Report):
    """A difference between the database and the published log, or between the log and the data.

    `source` says what was compared with the database: `json` (the commit file itself), `replay`
    (the log read by our own code), `deltalake` (the log read by stock deltalake), `checkpoint` or
    `crc`. If `source` is `data`, data files or their rows were compared with the log. In that case,
    `kind` is `missing`, `size`, `unreadable`, `unchecked`, `rows`, `nulls`, `min`, `max` or `row`.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"column": "field", "told": "log", "found": "data"}

    kind: str
    version: int | None = None
    path: str | None = None
    field: str | None = None
    sql: Any = None
    log: Any = None
    source: str = "replay"
    data: Any = None

    @classmethod
    def of_data(
        cls,
        kind: str,
        path: str | None,
        field: str | None = None,
        *,
        log: Any = None,
        data: Any = None,
    ) -> Difference:
        """Return a difference between the log and the data."""
        return cls(kind, path=path, field=field, log=log, data=data, source=DATA)

    def __str__(self) -> str:
        if self.source == DATA:
            return self._data_text()
        place = [f"version {self.version}"] if self.version is not None else []
        if self.kind == "unreadable":  # the reason often begins with the path and the line
            reason = _short(self.log)
            place += [self.path] if self.path and self.path not in reason else []
            return f"{self.kind} ({self.source}): {', '.join([*place, reason])}"
        place += [each for each in (self.path, self.field) if each]
        values = ""
        if self.sql is not None or self.log is not None:
            values = f": {_short(self.sql)} in SQL, {_short(self.log)} in the log"
        return f"{self.kind} ({self.source}): {', '.join(place)}{values}"

    def _data_text(self) -> str:
        if self.kind == "row":
            counts = f"{self.data} times in the data and {self.log} times in the log"
            return f"a row occurs {counts}: {self.field}"
        if self.kind in _TEXTS:
            reason = "" if self.data is None else f": {self.data}"
            return f"{self.path}: {_TEXTS[self.kind]}{reason}"
        where = "" if self.field is None else f" of {self.field}"
        values = f"the log has {self.log!r}, the file has {self.data!r}"
        return f"{self.path}: {self.kind}{where}: {values}"

    def _old_keys(self) -> Mapping[str, str]:
        return self.OLD_NAMES if self.source == DATA else {}


@dataclass(slots=True)
class Differences:
    """A list of differences: the first `keep` of each kind, and the number of all others."""

    keep: int = 100
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[Difference] = field(default_factory=list)
    _versions: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def add(self, difference: Difference) -> None:
        if difference.version is not None:
            place = (difference.source, difference.kind)
            self._versions.setdefault(place, set()).add(difference.version)
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] <= self.keep:
            self.kept.append(difference)

    def add_all(self, differences: Iterable[Difference]) -> None:
        for each in differences:
            self.add(each)

    def add_samples(self, differences: Iterable[Difference], total: int) -> None:
        """Add a sample of the differences of one kind, of which there are `total`."""
        samples = list(differences)
        self.add_all(samples)
        if samples:
            self.counts[samples[0].kind] += total - len(samples)

    def versions(self, source: str, *kinds: str) -> set[int]:
        """Return the versions at which a source has differences of some kinds, or of any kind."""
        places = self._versions.items()
        found = (v for (s, kind), v in places if s == source and (not kinds or kind in kinds))
        return set().union(*found)

    @property
    def total(self) -> int:
        """The number of differences, kept or not."""
        return sum(self.counts.values())

    def lines(self) -> list[str]:
        """Return the differences as strings, one line each."""
        lines = [str(each) for each in self.kept]
        more = self.total - len(self.kept)
        return [*lines, f"… and {more} more"] if more else lines


class _Comparison(Report):
    """Base of reports with differences, which are in the field `found`."""

    __slots__ = ()
    found: Differences

    @property
    def differences(self) -> list[Difference]:
        """The differences, at most `Differences.keep` of each kind; `total` counts all."""
        return self.found.kept

    @property
    def counts(self) -> dict[str, int]:
        """The number of differences of each kind."""
        return self.found.counts

    @property
    def total(self) -> int:
        """The number of differences."""
        return self.found.total


@dataclass(frozen=True, slots=True)
class DataReport(_Comparison):
    """The result of a check of a table's data."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("table", "version", "ok", "checks", "engine", "files", "bytes", "rows"),
        *("compared_with", "notes", "total", "counts", "differences"),
    )
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"size_bytes": "bytes"}

    table: str
    files: int
    rows: int | None
    found: Differences
    version: int | None = None
    checks: DataChecks = "counts"
    engine: str | None = None
    bytes: int = 0
    compared_with: str | None = None
    """The reader of the log in the comparison of rows: `deltalake`, `delta-spark` or `replay`."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the data matches the log."""
        return self.total == 0

    def summary(self) -> str:
        """Return the report as a string, one line per difference."""
        at = "" if self.version is None else f" at version {self.version}"
        rows = "" if self.rows is None else f", {many(self.rows, 'row')}"
        seen = (
            "" if self.compared_with is None else f", every row compared with {self.compared_with}"
        )
        what = f"{many(self.files, 'file')} of {size_text(self.bytes)}"
        head = f"{self.table}: data{at}: {what}{rows}{seen}"
        state = "ok" if self.ok else many(self.total, "difference")
        return "\n  ".join([f"{head}: {state}", *self.notes, *self.found.lines()])

    __str__ = summary


@dataclass(frozen=True, slots=True)
class VerifyReport(_Comparison):
    """What was compared, and the differences."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("table", "location", "ok", "sql_version", "log_version", "checked_from", "versions"),
        *("commits", "checkpoints", "checksums", "pending", "foreign_bytes", "notes"),
        *("total", "counts", "differences", "data"),
    )

    table: str
    location: str
    sql_version: int
    log_version: int | None = None
    checked_from: int | None = None
    versions: list[int] = field(default_factory=list)
    commits: int = 0
    checkpoints: list[int] = field(default_factory=list)
    checksums: int = 0
    pending: int = 0
    foreign_bytes: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: Differences = field(default_factory=Differences)
    data: list[DataReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the log matches the database, and the checked data matches the log."""
        return self.found.total == 0 and all(each.ok for each in self.data)

    @property
    def first_foreign(self) -> int | None:
        """The first foreign version after the head; None if there is none."""
        kept = self.found.kept
        foreign = [each.version for each in kept if each.kind == "foreign-version"]
        return min((version for version in foreign if version is not None), default=None)

    def summary(self) -> str:
        """Return the report as a string, one line per difference."""
        state = many(self.total, "difference") if self.total else "ok"
        lines = [
            f"{self.table}: {state} (version {self.sql_version} in SQL, "
            f"{'none' if self.log_version is None else self.log_version} in the log; "
            f"{many(self.commits, 'commit')}, {many(len(self.versions), 'state')}, "
            f"{many(len(self.checkpoints), 'checkpoint')} and "
            f"{many(self.checksums, 'checksum')} compared)"
        ]
        if self.checked_from:
            lines.append(f"  checked from version {self.checked_from}, where the log starts")
        if self.pending:
            lines.append(f"  not published yet: {many(self.pending, 'version')}")
        if self.foreign_bytes:
            lines.append(
                f"  {many(len(self.foreign_bytes), 'commit')} written by another program, "
                "with the same content as in SQL"
            )
        lines += [f"  {each}" for each in (*self.notes, *self.found.lines())]
        lines += [each.summary() for each in self.data]
        return "\n".join(lines)


def split_by_cause(
    differences: Sequence[Difference],
) -> tuple[list[Difference], list[Difference]]:
    """Split differences into errors in the database and errors in the log, in this order.

    The commits of the log are assumed correct. A checkpoint or checksum that differs from them is
    an error in the log. The same applies to a difference found by deltalake if it may have started
    from such a checkpoint, or if it cannot read the table at all.
    """
    has_wrong_checkpoint = any(each.source in _DERIVED for each in differences)
    in_sql: list[Difference] = []
    in_log: list[Difference] = []
    for each in differences:
        by_deltalake = each.source == "deltalake" and (
            has_wrong_checkpoint or each.kind == "unreadable"
        )
        (in_log if by_deltalake or each.source in _DERIVED else in_sql).append(each)
    return in_sql, in_log


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
