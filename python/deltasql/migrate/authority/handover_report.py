"""The reports of a cutover and a rollback, and the differences that make them fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql.model.counts import many
from deltasql.model.report import Report
from deltasql.verify.report import split_by_cause

if TYPE_CHECKING:
    from deltasql.verify.report import Difference, VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverReport(Report, ABC):
    """Common fields: the table, its version, and the comparison of the database with the log."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("ok", "table", "location", "state", "version", "verification", "notes", "warnings"),
    )

    table: str
    location: str
    state: str
    version: int | None = None
    verification: VerifyReport | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    @abstractmethod
    def ok(self) -> bool:
        """Whether the database and the log agree."""

    def summary(self) -> str:
        """Return the report as text."""
        lines = self._lines()
        if self.verification is not None:
            lines.append(f"verified: {self.verification.summary().partition(': ')[2]}")
        lines += [*self.notes, *(f"warning: {each}" for each in self.warnings)]
        return "\n  ".join([f"{self.table}: {lines[0]}", *lines[1:]])

    @abstractmethod
    def _lines(self) -> list[str]:
        """Return lines that describe the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverReport(HandoverReport):
    """The result of a cutover, which makes the database the authority of a table.

    `version` is the commit that blocks writers that bypass the catalog. `caught_up` is the number
    of commits of the log that the database lacked.
    """

    KEYS: ClassVar[tuple[str, ...]] = (*HandoverReport.KEYS, "caught_up", "attempts")

    state: Literal["cut over", "was cut over", "would cut over"] = "cut over"
    caught_up: int = 0
    attempts: int = 0

    @property
    def ok(self) -> bool:
        """Whether the database and the log agree."""
        return self.verification is None or not differences_from_log(self.verification)

    def _lines(self) -> list[str]:
        rest = "to append" if self.state == "would cut over" else "appended"
        lines = [f"{self.state}, {many(self.caught_up, 'commit')} of the log {rest}"]
        if self.version is not None:
            lines.append(f"version {self.version} enables in-commit timestamps")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport(HandoverReport):
    """The result of a rollback, which makes the log the authority of a table.

    `version` is the latest version of the log. `published` is the number of versions that the log
    lacked. `timestamps_dropped` is whether the latest commit dropped in-commit timestamps, so that
    other writers can commit again.
    """

    KEYS: ClassVar[tuple[str, ...]] = (*HandoverReport.KEYS, "published", "timestamps_dropped")

    state: Literal["rolled back", "was rolled back", "would roll back"] = "rolled back"
    published: int = 0
    timestamps_dropped: bool = False

    @property
    def ok(self) -> bool:
        """Whether the log has everything that the database has."""
        return self.verification is None or not differences_for_readers(self.verification)

    def _lines(self) -> list[str]:
        has, published = "has", "published"
        if self.state == "would roll back":
            has, published = "would have", "to publish"
        lines = [
            f"{self.state}, the log at {self.location} {has} version {self.version}, "
            f"{many(self.published, 'version')} {published}"
        ]
        if self.timestamps_dropped:
            lines.append(f"version {self.version} drops in-commit timestamps")
        return lines


def differences_from_log(found: VerifyReport) -> list[Difference]:
    """Return the differences between the database and the commits of the log.

    Commits of other writers after the latest version in the database are ignored. A checkpoint that
    contradicts its log is ignored too.
    """
    in_sql, _ = split_by_cause(found.differences)
    return [each for each in in_sql if each.kind != "foreign-version"]


def differences_for_readers(found: VerifyReport) -> list[Difference]:
    """Return the differences that a reader of the log would see after a rollback.

    Readers start from checkpoints, so differences in checkpoints are included. Commits of other
    writers after the latest version in the database are ignored, and so are tables that deltalake
    cannot read at all.
    """

    def is_ignored(each: Difference) -> bool:
        if each.kind == "last-checkpoint":
            return isinstance(each.log, int) and each.log > found.sql_version
        by_deltalake = each.source == "deltalake" and each.kind == "unreadable"
        return by_deltalake or each.kind == "foreign-version"

    return [each for each in found.differences if not is_ignored(each)]
