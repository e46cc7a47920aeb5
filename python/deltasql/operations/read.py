"""READ: the rows of a table in a transaction, including staged changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.model.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from deltasql.model.schema.schema import known_columns
from deltasql.operations.row_ids import scan_with_ids
from deltasql.operations.rules.conform import arrow_schema, conformer
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.queries import column
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import Relation
    from deltasql.model.predicates.parser import Flavour
    from deltasql.operations.table_stage import TableStage

_IDS = (ROW_ID, ROW_COMMIT_VERSION)


@adds_table_to_errors
def read_rows(
    stage: TableStage,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
    *,
    row_ids: bool = False,
) -> pa.RecordBatchReader:
    """Return the rows for which the predicate is true, and add them to the read set.

    With `row_ids`, the row ids and commit versions are added in columns at the end.
    """
    found = stage.engine.stream(read_relation(stage, columns, predicate, row_ids=row_ids))
    whole = arrow_schema(stage.metadata.schema_string)
    names = list(whole.names) if columns is None else list(columns)
    ids = [pa.field(name, pa.int64()) for name in _IDS if row_ids]
    wanted = pa.schema([*(whole.field(name) for name in names), *ids])
    if found.schema.equals(wanted):
        return found
    cast = map(conformer(found.schema, wanted), found)
    return pa.RecordBatchReader.from_batches(wanted, cast)


def read_relation(
    stage: TableStage,
    columns: Sequence[str] | None = None,
    predicate: object = None,
    *,
    flavour: Flavour = "datafusion",
    row_ids: bool = False,
) -> Relation:
    """Return the same rows as `read_rows`, but as a relation of the engine.

    `predicate` is SQL or a filter list.
    """
    found = None if predicate is None else stage.predicate(predicate, flavour=flavour)
    files = stage.files(found)
    stage.read(whole_table=found is None, predicate=found, files=files)
    names = known_columns(stage.schema, columns, stage.name)
    shown = [*names, *_IDS] if row_ids else names
    query = exp.select(*(column(name) for name in shown)).from_("rows")
    if found is not None:
        query = query.where(condition_of(found))
    engine, live = stage.engine, stage.live(files)
    rows = scan_with_ids(engine, live, _IDS) if row_ids else engine.scan(live)
    return engine.query(query, rows=rows)
