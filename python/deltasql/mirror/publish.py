"""Write ratified commits to `_delta_log`: in version order, put-if-absent, never overwriting."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import MirrorDivergedError, TxnLogError
from deltasql.mirror.log_files import commit_bytes, commit_file
from deltasql.model.clock import now_ms
from deltasql.phases import reached
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
TABLE_TARGET = "table"


def publish(store: Store, table: TableRow, version: int) -> bool:
    """Publish every version up to this one; a failure is recorded and logged, never raised.

    The commit is ratified already: whatever fails here can be published again from SQL.
    """
    failures: tuple[type[BaseException], ...] = (OSError, TxnLogError, *store.errors)
    with telemetry.span("publish", table=table.full_name), telemetry.timed("mirror_latency_ms"):
        each = version
        try:
            storage = open_storage(table.location)
            for each in _unpublished(store, table, version):
                _publish_one(store, table, storage, each)
                reached("published")
                _record(store, table, each, "COMPLETE", None)
        except failures as error:
            telemetry.count("mirror_failures_total", table=table.full_name)
            telemetry.log(
                _log,
                logging.WARNING,
                "publishing failed",
                table=table.full_name,
                version=each,
                error=str(error),
            )
            # With the database gone there is nowhere to record it: the next commit finds out.
            with suppress(*failures):
                _record(store, table, each, "FAILED", str(error))
            return False
    return True


def _unpublished(store: Store, table: TableRow, version: int) -> range:
    rows = store.query("last_published", table_id=table.table_id, target=TABLE_TARGET)
    last = rows[0][0]
    return range(0 if last is None else last + 1, version + 1)


def _publish_one(store: Store, table: TableRow, storage: Storage, version: int) -> None:
    with store.session() as session:
        data = commit_bytes(session, table.table_id, version)
    name = commit_file(version)
    if storage.put_if_absent(name, data):
        return
    if storage.read(name) != data:
        raise MirrorDivergedError(
            f"{name} of {table.full_name} exists with other content",
            table=table.full_name,
            version=version,
        )


def _record(store: Store, table: TableRow, version: int, status: str, error: str | None) -> None:
    with store.session() as session:
        session.execute(
            "set_mirror_status",
            table_id=table.table_id,
            version=version,
            target=TABLE_TARGET,
            status=status,
            last_error=error,
            updated_at_ms=now_ms(),
        )
