"""The progress of an export while it runs, and its report at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltasql.model.counts import many
from deltasql.model.report import Report

_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """The progress of an export.

    A file that was removed and added again is copied once, but `total_files` counts it twice.
    """

    commits: int
    total_commits: int
    files: int
    total_files: int
    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Files per second, or commits per second if no files are copied."""
        done = self.files if self.total_files else self.commits
        return done / self.seconds if self.seconds > 0 else 0.0

    @property
    def fraction(self) -> float:
        """The completed part of the export, from 0 to 1."""
        done, total = self.commits + self.files, self.total_commits + self.total_files
        return min(1.0, done / total) if total else 1.0

    @property
    def eta_s(self) -> float | None:
        """Estimated remaining seconds; None before anything is done."""
        return self.seconds * (1 / self.fraction - 1) if self.fraction else None


@dataclass(slots=True)
class ExportReport(Report):
    """The result of an export."""

    table: str
    location: str
    directory: str
    first_version: int
    last_version: int
    with_data: bool
    commits: int = 0
    files: int = 0
    bytes: int = 0
    checkpoints: list[int] = field(default_factory=list)
    continued: bool = False
    gone: list[str] = field(default_factory=list)
    """Missing data files of older versions; the versions that need them cannot be read."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the report as text."""
        span = f"versions {self.first_version} to {self.last_version}"
        if self.first_version == self.last_version:
            span = f"version {self.last_version}"
        what = many(self.commits, "commit")
        if self.with_data:
            what += f", {many(self.files, 'file')} of {many(self.bytes, 'byte')}"
        lines = [f"{self.table}: {span} exported to {self.directory} ({what})"]
        if not self.with_data:
            lines.append(f"  the data stays at {self.location}")
        if self.continued:
            lines.append("  an interrupted export was continued")
        if self.gone:
            lines.append(
                f"  missing: {many(len(self.gone), 'file')} of older versions, which cannot be "
                "read in the copy or in the table itself"
            )
            lines += [f"    {path}" for path in self.gone[:_MAX_SHOWN]]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
