"""Helpers of the engine tests: reading rows and plans for writing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.config import Config
from deltasql.engine.base import WriteOptions, WritePlan
from deltasql.engine.files.live_files import LiveFiles
from deltasql.model.actions import AddFile, Metadata
from deltasql.model.schema.convert import schema_from_any
from deltasql.storage import open_storage
from tests.oracles.states import Rows, arrow_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.engine.duckdb.engine import DuckDbEngine
    from tests.oracles.writing import Written


def scanned(engine: DuckDbEngine, written: Written, version: int | None = None) -> Rows:
    """Return the rows that an engine reads at a version, in normal form."""
    return arrow_rows(engine.collect(engine.scan(live_files(written, version))))


def live_files(written: Written, version: int | None = None) -> LiveFiles:
    """Return the live files of a version."""
    snapshot = written.table.snapshot(version)
    settings = written.catalog.config.storage
    return LiveFiles(snapshot.table.location, snapshot.metadata, snapshot.scan().arrow, settings)


def plan_for(
    location: Path | str,
    schema: object,
    *,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    intended: list[str] | None = None,
    options: WriteOptions | None = None,
    **fields: Any,
) -> WritePlan:
    """Return a plan for writing files to a folder; `intended` collects the files with an intent."""
    return WritePlan(
        location=str(location),
        storage=open_storage(str(location)),
        schema=schema_from_any(schema),
        partition_columns=tuple(partition_by),
        configuration=configuration or {},
        intend=(intended if intended is not None else []).extend,
        options=options or WriteOptions(),
        **fields,
    )


def listed(plan: WritePlan, adds: Sequence[AddFile], config: Config | None = None) -> LiveFiles:
    """Return written files in the form in which an engine reads them."""
    metadata = Metadata(
        id="0",
        schema_string=plan.schema.to_json(),
        partition_columns=plan.partition_columns,
        configuration=plan.configuration,
    )
    files = pa.table(
        {
            "path": [add.path for add in adds],
            "partition": [json.dumps(dict(add.partition_values)) for add in adds],
            "deletion_vector": pa.array([None] * len(adds), pa.string()),
            "size": pa.array([add.size for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
            "stats": pa.array([add.stats for add in adds], pa.string()),
        }
    )
    return LiveFiles(plan.location, metadata, files, (config or Config()).storage)


def parquet(plan: WritePlan, add: AddFile) -> pq.ParquetFile:
    """Open a written file."""
    return pq.ParquetFile(Path(plan.location) / plan.storage.data_name(add.path))
