"""READ: the rows of a table in a transaction, including staged changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.model.schema.schema import known_columns
from deltasql.operations.rules.conform import arrow_schema, conformer
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.queries import column
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import Relation
    from deltasql.model.predicates.parser import Flavour
    from deltasql.operations.table_stage import TableStage


@adds_table_to_errors
def read_rows(
    stage: TableStage, columns: Sequence[str] | None = None, predicate: str | None = None
) -> pa.RecordBatchReader:
    """Return the rows for which the predicate is true, and add them to the read set."""
    found = stage.engine.stream(read_relation(stage, columns, predicate))
    whole = arrow_schema(stage.metadata.schema_string)
    names = list(whole.names) if columns is None else list(columns)
    wanted = pa.schema([whole.field(name) for name in names])
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
) -> Relation:
    """Return the same rows as `read_rows`, but as a relation of the engine.

    `predicate` is SQL or a filter list.
    """
    found = None if predicate is None else stage.predicate(predicate, flavour=flavour)
    files = stage.files(found)
    stage.read(whole_table=found is None, predicate=found, files=files)
    names = known_columns(stage.schema, columns, stage.name)
    query = exp.select(*(column(name) for name in names)).from_("rows")
    if found is not None:
        query = query.where(condition_of(found))
    engine = stage.engine
    return engine.query(query, rows=engine.scan(stage.live(files)))
