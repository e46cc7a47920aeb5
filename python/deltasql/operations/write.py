"""WRITE: append rows to a table, or put them in the place of what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.engine.arrow import WritePlan, write_parquet
from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.protocol import required_features
from deltasql.model.schema_convert import schema_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.model.actions import Metadata
    from deltasql.model.schema import StructType
    from deltasql.operations.target import Target


def stage_write(target: Target, reader: pa.RecordBatchReader) -> None:
    """Write the rows as files and stage them."""
    schema = target.schema
    _refuse_unenforced(target.name, schema, target.metadata)
    arrow = schema_to_arrow(schema)
    missing = [name for name in arrow.names if name not in reader.schema.names]
    unknown = [name for name in reader.schema.names if name not in arrow.names]
    if missing or unknown:
        raise TxnLogSchemaError(
            f"the data does not fit {target.name}: "
            f"missing columns {missing}, unknown columns {unknown}",
            help="Give the data the table's columns.",
        )
    plan = WritePlan(target.storage, arrow, target.partition_columns, target.plan().intend)
    target.add(write_parquet(reader, plan))


def _refuse_unenforced(table: str, schema: StructType, metadata: Metadata) -> None:
    """Refuse a table whose rules this writer cannot keep: a wrong row is worse than none."""
    rules = {"checkConstraints", "generatedColumns", "invariants", "columnMapping"}
    needed = sorted(required_features(schema, metadata.configuration) & rules)
    if needed:
        raise UnsupportedFeatureError(
            f"rows cannot be written to {table} yet: it uses {', '.join(needed)}",
            features=tuple(needed),
            help="Write the files with an engine that keeps these rules and stage their actions.",
        )
