"""Columns that a write may leave out: those with defaults, generated and identity columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.choose import open_engine
from deltasql.model.schema.identity import identity_columns
from deltasql.model.schema.schema import CURRENT_DEFAULT
from deltasql.operations.rules.conform import arrow_schema, cast_column
from deltasql.operations.rules.row_checks import generated_columns
from deltasql.operations.sql.defaults import default_value
from deltasql.operations.sql.queries import alias, column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from deltasql.engine.base import Engine, Relation
    from deltasql.operations.table_stage import TableStage


def optional_columns(stage: TableStage) -> Sequence[str]:
    """Return the columns that a write fills if its rows do not have them."""
    with_default = (each.name for each in stage.schema.fields if CURRENT_DEFAULT in each.metadata)
    return [*generated_columns(stage), *with_default, *identity_columns(stage.schema)]


def missing_defaults(stage: TableStage, given: Collection[str]) -> dict[str, exp.Expr]:
    """Return the defaults of missing columns; `given` are the columns that the rows have."""
    missing = (each for each in stage.schema.fields if each.name not in given)
    values = ((each.name, default_value(each)) for each in missing)
    return {name: value for name, value in values if value is not None}


def default_constants(stage: TableStage, given: Collection[str]) -> dict[str, pa.Scalar]:
    """Compute the defaults of the columns that rows do not have, once for all rows."""
    defaults = missing_defaults(stage, given)
    if not defaults:
        return {}
    with open_engine(stage.config, name="duckdb") as engine:
        query = exp.select(*(alias(value, name) for name, value in defaults.items()))
        row = engine.collect(engine.query(query)).to_batches()[0]
    wanted = arrow_schema(stage.metadata.schema_string)
    return {
        name: cast_column(row.column(name), wanted.field(name).type, name)[0] for name in defaults
    }


def with_defaults(stage: TableStage, relation: Relation, engine: Engine) -> Relation:
    """Add the columns with defaults that rows do not have."""
    defaults = missing_defaults(stage, relation.columns)
    if not defaults:
        return relation
    present = (column(name) for name in relation.columns)
    added = (alias(value, name) for name, value in defaults.items())
    return engine.query(exp.select(*present, *added).from_("rows"), rows=relation)
