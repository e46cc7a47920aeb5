"""What moving the authority over a table did: to SQL by a cutover, to its log by a rollback."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from deltasql.migrate.authority.authority import serious, wrong_for_readers
from deltasql.model.counts import many

if TYPE_CHECKING:
    from deltasql.mirror.verify.verify import VerifyReport


@dataclass(slots=True, kw_only=True)
class HandoverReport(ABC):
    """What both tell: the table, the version that counts, and how SQL compares with the log."""

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
        """Whether SQL and the log say the same."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        verification = None if self.verification is None else self.verification.to_dict()
        return {"ok": self.ok, **told, "verification": verification}

    def summary(self) -> str:
        """Return the report as text."""
        lines = self._told()
        if self.verification is not None:
            lines.append(f"verified: {self.verification.summary().partition(': ')[2]}")
        lines += [*self.notes, *(f"warning: {each}" for each in self.warnings)]
        return "\n  ".join([f"{self.table}: {lines[0]}", *lines[1:]])

    @abstractmethod
    def _told(self) -> list[str]:
        """Return in lines what was done."""


@dataclass(slots=True, kw_only=True)
class CutoverReport(HandoverReport):
    """What was done to make SQL the authority of a table.

    `version` is the commit that keeps writers by path out, `caught_up` how many commits of the
    log were new.
    """

    state: Literal["cut over", "was cut over", "would cut over"] = "cut over"
    caught_up: int = 0
    attempts: int = 0

    @property
    def ok(self) -> bool:
        """Whether SQL and the log say the same."""
        return self.verification is None or not serious(self.verification)

    def _told(self) -> list[str]:
        rest = "to catch up with" if self.state == "would cut over" else "caught up with"
        lines = [f"{self.state}, {many(self.caught_up, 'commit')} of the log {rest}"]
        if self.version is not None:
            lines.append(f"version {self.version} turns in-commit timestamps on")
        return lines


@dataclass(slots=True, kw_only=True)
class RollbackReport(HandoverReport):
    """What was done to leave a table to its log.

    `version` is the latest of the log, `published` how many the log lacked, and
    `timestamps_dropped` says whether the latest lets writers by path in.
    """

    state: Literal["rolled back", "was rolled back", "would roll back"] = "rolled back"
    published: int = 0
    timestamps_dropped: bool = False

    @property
    def ok(self) -> bool:
        """Whether the log has all that SQL has."""
        return self.verification is None or not wrong_for_readers(self.verification)

    def _told(self) -> list[str]:
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
