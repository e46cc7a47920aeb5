"""READ: the rows of a table inside of a transaction, with what was staged so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.model.schema.schema import known_columns
from deltasql.operations.rules.conform import arrow_schema, conformer
from deltasql.operations.sql.expressions import parse_condition
from deltasql.operations.sql.types import column
from deltasql.operations.target import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import Relation
    from deltasql.operations.target import TableStage


@adds_table_to_errors
def read_rows(
    target: TableStage, columns: Sequence[str] | None = None, predicate: str | None = None
) -> pa.RecordBatchReader:
    """Return the rows for which a predicate is true; a commit that changes them is a conflict."""
    found = target.engine.stream(read_relation(target, columns, predicate))
    whole = arrow_schema(target.metadata.schema_string)
    names = list(whole.names) if columns is None else list(columns)
    wanted = pa.schema([whole.field(name) for name in names])
    conform = conformer(found.schema, wanted)
    if conform is None:
        return found
    return pa.RecordBatchReader.from_batches(wanted, map(conform, found))


def read_relation(
    target: TableStage, columns: Sequence[str] | None = None, predicate: str | None = None
) -> Relation:
    """Return the same rows where the engine has them."""
    pruning = None if predicate is None else target.predicate(predicate)
    files = target.files(pruning)
    target.read(whole_table=pruning is None, predicate=pruning, files=files)
    names = known_columns(target.schema, columns, target.name)
    query = exp.select(*(column(name) for name in names)).from_("rows")
    if predicate is not None:
        query = query.where(parse_condition(predicate, target.schema))
    engine = target.engine
    return engine.query(query, rows=engine.scan(target.live(files)))
