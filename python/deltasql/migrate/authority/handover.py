"""Code that cutover and rollback share: reports, table properties, timestamps, single commits."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from deltasql.mirror.log.encode import commit_file, version_row
from deltasql.mirror.log.same_commit import has_commit
from deltasql.mirror.publish.targets import OWN, PublishTarget
from deltasql.model.report import Report
from deltasql.store import audit
from deltasql.store.records import TableRow, VersionRow
from deltasql.verify.report import split_by_cause

if TYPE_CHECKING:
    from deltasql.model.actions import Metadata
    from deltasql.storage import Storage
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store
    from deltasql.verify.report import Difference, VerifyReport

CUTOVER = "deltasql.cutover"
"""The table property with the transaction id of the commit of an unfinished cutover."""
_RECENT = 100  # a warning names the writers of this many latest versions
# In-commit timestamps do not block writers whose names begin with one of these patterns.
SPARK, _OLD_DELTALAKE = "Apache-Spark/", r"delta-rs[:.](py-)?0\."
ENABLED = "delta.enableInCommitTimestamps"
ENABLED_SINCE = "delta.inCommitTimestampEnablementVersion"
ENABLED_AT = "delta.inCommitTimestampEnablementTimestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverReport(Report, ABC):
    """The fields that the reports of cutover and rollback share.

    `verification` is the comparison of the database with the log.
    """

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


def properties_of(session: Session, table: TableRow) -> dict[str, str]:
    """Read the current properties of a table in the catalog."""
    (row,) = session.query("table_by_uuid", table_uuid=table.table_uuid)
    return dict(TableRow.from_row(row).properties)


def set_properties(session: Session, table: TableRow, properties: dict[str, str]) -> None:
    """Replace the properties of a table in the catalog."""
    text = json.dumps(properties)
    session.execute("set_table_properties", table_id=table.table_id, properties=text)
    audit.record(session, table.table_id)


def enabled_by(store: Store, table: TableRow, metadata: Metadata) -> VersionRow | None:
    """Return the commit that enabled in-commit timestamps.

    The metadata contains the version of this commit. If it does not, the first version is used. If
    the database does not have that version any more, return the latest commit: its writer is
    assumed to be the same.
    """
    low, high = store.query("version_bounds", table_id=table.table_id)[0]
    since = int(metadata.configuration.get(ENABLED_SINCE, low))
    version = since if since >= low else high
    return version_row(store, table.table_id, version)


def unblocked_writers_warning(store: Store, table: TableRow, *, is_fenced: bool = False) -> str:
    """Return a warning about writers that can still bypass the catalog, with recent examples.

    deltalake before 1.0 does not check the features of a table before it writes. delta-spark
    supports in-commit timestamps, so only a fence blocks it.
    """
    writers, advice = "deltalake before 1.0 and delta-spark are", "; a fence blocks delta-spark"
    pattern = rf"{SPARK}|{_OLD_DELTALAKE}"
    if is_fenced:
        writers, pattern, advice = "deltalake before 1.0 is", _OLD_DELTALAKE, ""
    seen = recent_engines(store, table, pattern)
    recent = f" (recent: {', '.join(seen)})" if seen else ""
    return (
        f"{writers} not blocked{recent}: move those writers to the "
        f"catalog, or revoke their write access{advice}"
    )


def recent_engines(store: Store, table: TableRow, pattern: str) -> list[str]:
    """Return the writers of the latest versions whose names begin with a pattern."""
    table_id = table.table_id
    low, last = store.query("version_bounds", table_id=table_id)[0]
    rows = store.query("history", table_id=table_id, first=low, last=last, limit=_RECENT)
    infos = [VersionRow.from_row(row).info for row in rows]
    engines = {str(info.engine_info or info.extra.get("clientVersion") or "") for info in infos}
    return sorted(each for each in engines if re.match(pattern, each))


def is_published(
    store: Store, session: Session, table: TableRow, storage: Storage, version: int
) -> bool:
    """Return whether the log has a version: it is recorded as published, or its file exists."""
    targets = [
        PublishTarget.from_row(row) for row in session.query("targets_of", table_id=table.table_id)
    ]
    own = next(each for each in targets if each.name == OWN)
    if own.published_version >= version:
        return True
    if own.is_quarantined:
        return False
    try:
        return has_commit(store, table, version, storage.read(commit_file(version)))
    except FileNotFoundError:
        return False


def try_commit(storage: Storage, version: int, data: bytes) -> bool:
    """Write a commit to the log; return False if the log has another commit with that version."""
    name = commit_file(version)
    # If the response of an object store was lost, the existing file may be the one written here.
    return storage.put_if_absent(name, data) or storage.read(name) == data
