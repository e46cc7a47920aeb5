"""The report of an import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deltasql.model.counts import many, size_text
from deltasql.model.report import Report

if TYPE_CHECKING:
    from deltasql.exceptions import TxnLogError
    from deltasql.verify.report import VerifyReport

ImportState = Literal[
    "imported",
    "continued",
    "replaced",
    "up to date",
    "would import",
    "would continue",
    "would replace",
    "failed",
]
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ImportReport(Report):
    """The result of importing one table.

    `commits`, `files` and `log_bytes` count what this run loaded or, in a dry run, would load.
    `live_files` and `live_bytes` are the totals of the table at its last version.
    """

    KEYS: ClassVar[tuple[str, ...]] = (
        *("ok", "source", "table", "state", "first_version", "last_version", "commits", "files"),
        *("log_bytes", "live_files", "live_bytes", "protocol", "missing", "missing_files"),
        *("notes", "warnings", "verification", "error", "seconds"),
    )

    source: str
    table: str | None = None
    state: ImportState = "imported"
    first_version: int | None = None
    last_version: int | None = None
    commits: int = 0
    files: int = 0
    log_bytes: int = 0
    live_files: int = 0
    live_bytes: int = 0
    protocol: dict[str, Any] | None = None
    missing_files: list[str] = field(default_factory=list)
    missing: int = 0
    accepts_missing: bool = False
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    verification: VerifyReport | None = None
    error: TxnLogError | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the table was imported, or in a dry run could be, without missing files."""
        return self.state != "failed" and (self.accepts_missing or not self.missing)

    @property
    def files_per_second(self) -> float:
        """Files loaded per second."""
        return self.files / max(self.seconds, 1e-9)

    def summary(self) -> str:
        """Return the report as text."""
        lines = [f"{self.table or self.source}: {self.state}"]
        if self.last_version is not None:
            live = f"{many(self.live_files, 'file')} of {size_text(self.live_bytes)}"
            lines.append(
                f"  versions {self.first_version} to {self.last_version}, {live}, "
                f"from {self.source}"
            )
        if self.commits:
            loaded = f"{many(self.commits, 'commit')} with {many(self.files, 'file')}"
            lines.append(f"  {loaded} in {self.seconds:.1f} s")
        if self.verification is not None:
            lines.append(f"  {_verified(self.verification)}")
        if self.error is not None:
            lines.append(f"  {self.error}")
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        lines += [f"    {each}" for each in self.missing_files[:_MAX_SHOWN]]
        if self.missing > _MAX_SHOWN:
            lines.append(f"    … and {self.missing - _MAX_SHOWN} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ImportSummary(Report):
    """The results of importing every table below a folder."""

    KEYS: ClassVar[tuple[str, ...]] = ("ok", "root", "seconds", "tables")

    root: str
    tables: list[ImportReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every table is in the catalog."""
        return all(each.ok for each in self.tables)

    def summary(self) -> str:
        """Return the summary as a text table, followed by errors and warnings of single tables."""
        head = ("table", "state", "versions", "commits", "files", "bytes", "warnings")
        rows = [head, *(_row(each) for each in self.tables)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        failed = [each for each in self.tables if not each.ok]
        for each in self.tables:
            if each.error is not None or each.warnings:
                lines += ["", each.summary()]
        lines += ["", f"{many(len(self.tables), 'table')} below {self.root}, {len(failed)} failed"]
        return "\n".join(lines)


def _verified(found: VerifyReport) -> str:
    versions = ", ".join(str(version) for version in found.versions)
    return f"verified: {many(found.commits, 'commit')}, and the state at version {versions}"


def _row(each: ImportReport) -> tuple[str, ...]:
    span = "" if each.last_version is None else f"{each.first_version} to {each.last_version}"
    counts = (each.commits, each.live_files, size_text(each.live_bytes), len(each.warnings))
    return (each.table or each.source, each.state, span, *(str(count) for count in counts))
