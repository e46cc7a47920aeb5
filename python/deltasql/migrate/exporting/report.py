"""The report of an export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from deltasql.model.counts import many
from deltasql.model.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ExportReport(Report):
    """The result of an export."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"gone": "missing_files"}

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
    missing_files: list[str] = field(default_factory=list)
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
        if self.missing_files:
            count = many(len(self.missing_files), "file")
            lines.append(
                f"  missing: {count} of older versions, which cannot be read in the copy or in the "
                "table itself"
            )
            lines += [f"    {path}" for path in self.missing_files[:_MAX_SHOWN]]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
