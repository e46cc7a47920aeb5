"""deltasql's own result: the files that SQL lists, read with pyarrow."""

from __future__ import annotations

import json
from datetime import UTC
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql import DeletionVector
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import ArrayType, MapType, StructType, column_mapping_mode
from deltasql.storage import open_storage
from tests.oracles.deletion_vectors import deleted_rows
from tests.oracles.states import Log, Rows, rows_of, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.config import StorageSettings
    from deltasql.model.schema.schema import DataType
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage


def own_rows(table: CatalogTable, version: int) -> Rows:
    """Return the rows of a version: files from SQL, content read with pyarrow."""
    snapshot = table.snapshot(version)
    rows = _read(snapshot, table.catalog.config.storage)
    return rows_of(schema_to_arrow(snapshot.schema), rows)


def own_log(table: CatalogTable, version: int) -> Log:
    """Return the state of a version in SQL without the rows."""
    snapshot = table.snapshot(version)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return Log(
        version=snapshot.version,
        schema=json.dumps(json.loads(metadata.schema_string), sort_keys=True),
        partition_columns=metadata.partition_columns,
        configuration=dict(metadata.configuration),
        description=(metadata.id, metadata.name, metadata.description),
        protocol=(
            protocol.min_reader_version,
            protocol.min_writer_version,
            tuple(sorted(protocol.reader_features or ())),
            tuple(sorted(protocol.writer_features or ())),
        ),
        files=tuple(
            sorted(
                (
                    row["path"],
                    row["size"],
                    row["modification_time"],
                    row["num_records"],
                    value_text(_logical_partition(snapshot, row)),
                )
                for row in snapshot.scan().arrow.to_pylist()
            )
        ),
        apps={app: txn.version for app, txn in snapshot.transactions().items()},
    )


def own_state(table: CatalogTable, version: int) -> dict[str, Any]:
    """Return the whole state of a version as the actions of a checkpoint."""
    snapshot = table.snapshot(version)
    return {
        "metaData": snapshot.metadata.body(),
        "protocol": snapshot.protocol.body(),
        "add": sorted(_adds(snapshot), key=lambda add: str(add["path"])),
        "txn": sorted((txn.body() for txn in snapshot.transactions().values()), key=str),
        "domainMetadata": sorted((each.body() for each in snapshot.domains().values()), key=str),
    }


def _adds(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for row in snapshot.scan().arrow.to_pylist():
        add = {
            "path": row["path"],
            "partitionValues": json.loads(row["partition"]),
            "size": row["size"],
            "modificationTime": row["modification_time"],
            "dataChange": False,  # in a state, unlike in a commit, it has no meaning
            "stats": row["stats"] or None,
            "tags": json.loads(row["tags"] or "null"),
            "deletionVector": json.loads(row["deletion_vector"] or "null"),
            "baseRowId": row["base_row_id"],
            "defaultRowCommitVersion": row["default_row_commit_version"],
            "clusteringProvider": row["clustering_provider"] or None,
        }
        yield {name: value for name, value in add.items() if value is not None}


def _read(snapshot: Snapshot, settings: StorageSettings) -> Iterator[dict[str, Any]]:
    location = snapshot.table.location
    root = location if "://" in location else Path(location).as_uri()
    storage = open_storage(location, settings)
    mode = column_mapping_mode(snapshot.metadata.configuration)
    for file in snapshot.scan().arrow.to_pylist():
        name = unquote(file["path"].removeprefix(f"{root}/"))
        deleted: set[int] = set()
        if file["deletion_vector"]:
            vector = DeletionVector.from_body(json.loads(file["deletion_vector"]))
            deleted = deleted_rows(vector, lambda path: storage.read(path.removeprefix(f"{root}/")))
        constants = _partition(snapshot, file)
        for position, row in enumerate(_content(storage, name)):
            if position not in deleted:
                yield _logical({**row, **constants}, snapshot.schema, mode)


@lru_cache(maxsize=1000)
def _content(storage: Storage, name: str) -> list[dict[str, Any]]:
    # A file handle: with a path, pyarrow would take partition values from folder names.
    with storage.open_input(name) as opened:
        rows: list[dict[str, Any]] = pq.read_table(opened).to_pylist()
    return rows


def _logical_partition(snapshot: Snapshot, file: Mapping[str, Any]) -> dict[str, Any]:
    values = _partition(snapshot, file).values()
    return dict(zip(snapshot.partition_columns, values, strict=True))


def _partition(snapshot: Snapshot, file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed partition values of a file by physical name."""
    mode = column_mapping_mode(snapshot.metadata.configuration)
    texts = json.loads(file["partition"])
    values = {}
    for name, kind in _partition_types(snapshot.metadata.schema_string, snapshot.partition_columns):
        found = snapshot.schema.find(name)
        assert found is not None
        physical = found.physical_name(mode)
        text = texts[physical] or None
        if text and pa.types.is_timestamp(kind) and kind.tz and not text.endswith("Z"):
            text += "Z"  # a timestamp without a zone is in UTC
        values[physical] = pa.scalar(text, pa.string()).cast(kind).as_py()
    return values


@lru_cache
def _partition_types(schema: str, names: tuple[str, ...]) -> list[tuple[str, pa.DataType]]:
    types = schema_to_arrow(StructType.from_json(schema))
    return [(name, types.field(name).type) for name in names]


def _logical(value: Any, kind: DataType, mode: str | None) -> Any:
    """Rename a value of a file to the names of the schema; a missing column is null."""
    match kind:
        case _ if value is None:
            return None
        case StructType():
            return {
                each.name: _logical(value.get(each.physical_name(mode)), each.type, mode)
                for each in kind.fields
            }
        case ArrayType():
            return [_logical(each, kind.element_type, mode) for each in value]
        case MapType():
            return [
                (_logical(key, kind.key_type, mode), _logical(each, kind.value_type, mode))
                for key, each in value
            ]
        case "timestamp" if value.tzinfo is None:
            return value.replace(tzinfo=UTC)  # INT96 has no zone
        case _:
            return value
