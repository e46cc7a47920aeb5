"""WRITE: append rows to a table, or put them in the place of what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from deltasql.commit.staged import ReadSet
from deltasql.engine.arrow import WritePlan, write_parquet
from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.actions import RemoveFile
from deltasql.model.protocol import required_features
from deltasql.model.schema import StructType
from deltasql.model.schema_convert import schema_to_arrow
from deltasql.store.records import load, load_dv

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.commit.staged import Staged
    from deltasql.model.actions import Metadata
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage


def stage_write(
    staged: Staged,
    reader: pa.RecordBatchReader,
    metadata: Metadata,
    *,
    storage: Storage,
    intend: Callable[[list[str]], None],
    replaces: Snapshot | None = None,
) -> None:
    """Write the rows as files and stage them; `replaces` is the snapshot an overwrite removes."""
    schema = StructType.from_json(metadata.schema_string)
    _refuse_unenforced(staged.table.full_name, schema, metadata)
    target = schema_to_arrow(schema)
    missing = [name for name in target.names if name not in reader.schema.names]
    unknown = [name for name in reader.schema.names if name not in target.names]
    if missing or unknown:
        raise TxnLogSchemaError(
            f"the data does not fit {staged.table.full_name}: "
            f"missing columns {missing}, unknown columns {unknown}",
            help="Give the data the table's columns.",
        )
    plan = WritePlan(storage, target, metadata.partition_columns, intend)
    staged.extend(write_parquet(reader, plan))
    if replaces is not None:
        staged.extend(_removals(replaces))
        known = staged.read_version
        staged.read_version = replaces.version if known is None else min(known, replaces.version)
        staged.reads = staged.reads.merge(ReadSet(whole_table=True))


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


def _removals(snapshot: Snapshot) -> list[RemoveFile]:
    return [
        RemoveFile(
            path=row["path"],
            data_change=True,
            extended_file_metadata=True,
            partition_values=load(row["partition"]),
            size=row["size"],
            deletion_vector=load_dv(row["deletion_vector"]),
        )
        for row in snapshot.scan().arrow.to_pylist()
    ]
