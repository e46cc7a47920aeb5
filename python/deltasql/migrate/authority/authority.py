"""What cutover and rollback share: the marks of a table, and single commits of its log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from deltasql.migrate.importing.load_log import has_commit
from deltasql.migrate.importing.verify import whose
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.publish.targets import OWN, PublishTarget
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from deltasql.mirror.verify.differences import Difference
    from deltasql.mirror.verify.verify import VerifyReport
    from deltasql.model.actions import Metadata
    from deltasql.storage import Storage
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

CUTOVER = "deltasql.cutover"  # of a table: the id of the commit by which SQL takes over
_LATE = 100  # versions that tell who writes to a table
_NOT_KEPT_OUT = re.compile(r"Apache-Spark/|delta-rs[:.](py-)?0\.")
ENABLED = "delta.enableInCommitTimestamps"
ENABLED_SINCE = "delta.inCommitTimestampEnablementVersion"
ENABLED_AT = "delta.inCommitTimestampEnablementTimestamp"


def properties_of(session: Session, table: TableRow) -> dict[str, str]:
    """Return the catalog's own properties of a table as they are now."""
    (row,) = session.query("table_by_uuid", table_uuid=table.table_uuid)
    return dict(TableRow.from_row(row).properties)


def set_properties(session: Session, table: TableRow, properties: dict[str, str]) -> None:
    """Replace the catalog's own properties of a table."""
    text = json.dumps(properties)
    session.execute("set_table_properties", table_id=table.table_id, properties=text)


def enabled_by(store: Store, table: TableRow, metadata: Metadata) -> VersionRow | None:
    """Return the commit that turned in-commit timestamps on: the first one, if none is told.

    Where that is older than what SQL has of the log, the latest commit tells who writes it.
    """
    low, high = store.query("version_bounds", table_id=table.table_id)[0]
    told = int(metadata.configuration.get(ENABLED_SINCE, low))
    version = told if told >= low else high
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    return VersionRow.from_row(rows[0]) if rows else None


def not_kept_out(store: Store, table: TableRow) -> str:
    """Say who can still write to a log by path, and which of them did of late.

    In-commit timestamps are a feature that delta-spark knows, and deltalake before 1.0 does not
    look at the features of a table that it writes to.
    """
    table_id = table.table_id
    low, last = store.query("version_bounds", table_id=table_id)[0]
    rows = store.query("history", table_id=table_id, first=low, last=last, limit=_LATE)
    infos = [VersionRow.from_row(row).info for row in rows]
    told = {str(info.engine_info or info.extra.get("clientVersion") or "") for info in infos}
    seen = sorted(each for each in told if _NOT_KEPT_OUT.match(each))
    who = f" (here: {', '.join(seen)})" if seen else ""
    return (
        f"deltalake before 1.0 and delta-spark are not kept out{who}: move those writers, or take "
        "their right to write away"
    )


def is_in_place(
    store: Store, session: Session, table: TableRow, storage: Storage, version: int
) -> bool:
    """Tell whether the log has a version as SQL has it, by what is noted or by the file itself."""
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


def serious(found: VerifyReport) -> list[Difference]:
    """Return the differences in what SQL and the log say.

    A commit of others past SQL's head is none, nor is a checkpoint that contradicts its log.
    """
    ours, _ = whose(found.differences)
    return [each for each in ours if each.kind != "foreign-version"]


def wrong_for_readers(found: VerifyReport) -> list[Difference]:
    """Return the differences that readers by path would meet in a log that is left to them.

    They start from its checkpoints, so those count as the commits do. What others wrote past SQL's
    head is none, nor is a table that stock deltalake cannot read at all.
    """

    def is_others(each: Difference) -> bool:
        if each.kind == "last-checkpoint":
            return isinstance(each.log, int) and each.log > found.sql_version
        by_deltalake = each.source == "deltalake" and each.kind == "unreadable"
        return by_deltalake or each.kind == "foreign-version"

    return [each for each in found.differences if not is_others(each)]


def put_commit(storage: Storage, version: int, data: bytes) -> bool:
    """Put a commit into the log; False when another one has its place."""
    name = commit_file(version)
    # When an answer of an object store was lost, the file that is found may be our own.
    return storage.put_if_absent(name, data) or storage.read(name) == data
