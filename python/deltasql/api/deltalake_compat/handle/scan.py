"""Read the rows of a version with the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.choose import open_engine
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import known_columns
from deltasql.operations.rules.conform import cast_column
from deltasql.operations.sql.expressions import condition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable

_TABLE = "t"


def read_rows(
    table: OpenTable,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
    *,
    files: pa.Table | None = None,
    views: bool = True,
) -> pa.RecordBatchReader:
    """Stream the rows that match a predicate, from `files` or from all files that may match.

    With `views`, strings and binary values have the view types of deltalake's scan.
    """
    declared = table.snapshot.schema
    found = None if predicate is None else table.snapshot.predicate(predicate, flavour="datafusion")
    condition = None if found is None else condition_of(found, _TABLE)
    names = known_columns(declared, columns, table.name)
    whole = schema_to_arrow(declared)
    fields = [whole.field(name) for name in names]
    if views:
        fields = [field.with_type(_as_view(field.type)) for field in fields]
    schema = pa.schema(fields)
    listed = files if files is not None else table.listed(found)
    wanted: list[exp.Expr] = [exp.column(name, _TABLE, quoted=True) for name in names]
    # If no columns are requested, select null: the batches must still have all rows.
    query = exp.select(*(wanted or [exp.null()])).from_(exp.to_table(_TABLE))
    if condition is not None:
        query = query.where(condition)
    return pa.RecordBatchReader.from_batches(schema, _batches(table, listed, query, schema))


def _batches(
    table: OpenTable, listed: pa.Table, query: exp.Select, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    with open_engine(table.catalog.config, name="duckdb") as engine:
        rows = engine.query(query, **{_TABLE: engine.scan(table.live(listed))})
        for batch in engine.stream(rows):
            yield _conformed(batch, schema)


def _as_view(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in deltalake's scan: a view type, except inside maps."""
    types = pa.types
    if types.is_string(kind):
        return pa.string_view()
    if types.is_binary(kind):
        return pa.binary_view()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_as_view(field.type)) for field in kind.fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_view(kind.value_type)))
    return kind


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the table's schema, as the engine may use other names and wider types."""
    if not schema.names:
        return batch.select([])
    columns = [
        cast_column(column, field.type, field.name)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
