"""ALTER TABLE ALTER COLUMN SYNC IDENTITY: continue after explicit values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.identity import Identity, identity_columns
from deltasql.model.schema.schema import nearest
from deltasql.operations.sql.queries import alias, column, select
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from deltasql.operations.table_stage import TableStage


@adds_table_to_errors
def sync_identity(stage: TableStage, name: str) -> None:
    """Move the high-water mark of an identity column after all values of its rows.

    The mark is never moved back.
    """
    field = stage.schema.find(name.strip("`"))
    identity = None if field is None else Identity.of(field)
    if field is None or identity is None:
        known = list(identity_columns(stage.schema))
        raise TxnLogSchemaError(
            f"column {name!r} is not an identity column",
            column=name,
            help=f"{nearest(name, known)}The identity columns are: {', '.join(known) or 'none'}.",
        )
    files = stage.files()
    stage.read(whole_table=True, files=files)
    if len(files):
        latest = exp.Max if identity.step > 0 else exp.Min
        query = select(alias(latest(this=column(field.name)), "latest"), source="rows")
        rows = stage.engine.scan(stage.live(files))
        value = stage.engine.collect(stage.engine.query(query, rows=rows))["latest"][0].as_py()
        if value is not None:
            stage.move_mark(field.name, value)
    stage.set_commit_info("SYNC IDENTITY", {"column": field.name})
