"""Find the table or the namespace that a request names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TableChangedError
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import TableRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_name(body: Mapping[str, Any], key: str = "name") -> str:
    """Return the table name in a request, in the form that `catalog.table` accepts."""
    return join_table_name(str(body["namespace"]), str(body[key]))


def snapshot_of(catalog: Catalog, body: Mapping[str, Any]) -> Snapshot:
    """Return the table of a request at its version or timestamp, by default the latest version.

    If the request contains a table id, the table with this name must have this id.
    """
    name = table_name(body)
    table = catalog.table(name)
    _check_id(table.row, body)
    micros = body.get("timestamp_us")
    timestamp = None if micros is None else _EPOCH + timedelta(microseconds=int(micros))
    return table.snapshot(body.get("version"), timestamp=timestamp)


def stage_of(tx: MultiTableTransaction, body: Mapping[str, Any]) -> TableStage:
    """Return the table of a request with the changes that a transaction has staged."""
    stage = tx.target(table_name(body))
    _check_id(stage.staged.table, body)
    return stage


def _check_id(table: TableRow, body: Mapping[str, Any]) -> None:
    if body.get("id", table.table_uuid) != table.table_uuid:
        name = table_name(body)
        raise TableChangedError(
            f"{name} was replaced by another table after the statement began", table=name
        )
