"""Write rows to a table inside a transaction, and create the table if it does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TableExistsError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.operations.write import check_modes, rows_to_write, schema_to_create, stage_write
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.operations.write_request import WriteRequest


def write_rows(
    tx: MultiTableTransaction, table: str, data: object, request: WriteRequest
) -> dict[str, Any]:
    """Write rows as data files and stage them; returns deltalake's metrics.

    The mode `ignore` writes nothing if the table exists, and returns no metrics.
    """
    check_modes(request.mode, request.schema_mode)
    rows = data
    if not tx.has_table(table):
        rows = rows_to_write(data)
        must_be_new = request.mode in ("error", "ignore")
        create = tx.create_table if must_be_new else tx.create_missing
        create(
            table,
            schema_to_create(rows),
            location=request.location,
            partition_by=request.partition_by,
            properties=request.properties,
            title=request.title,
            description=request.description,
        )
    elif request.mode == "error":
        raise TableExistsError(
            f"A table already exists at: {location_url(tx.target(table).location)}/",
            prefix=GENERIC_ERROR,
            table=table,
            help="Use mode='append' or mode='overwrite', or choose another name.",
        )
    elif request.mode == "ignore":
        return {}
    return stage_write(tx.target(table, data, engine=request.engine), rows, request)
