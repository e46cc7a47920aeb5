"""CONVERT TO DELTA: create a table from the Parquet files in a folder, without copying them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engine.base import WritePlan
from deltasql.engine.parquet.file_shape import FileShape, file_shape
from deltasql.engine.parquet.footer_stats import footer_statistics
from deltasql.exceptions import TableExistsError, TxnLogError, TxnLogSchemaError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.actions import AddFile
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import StructType
from deltasql.operations.rules.schema_merge import merge_schemas
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.storage import FileInfo, Storage

_LOG = "_delta_log/"
_FOOTERS_AT_ONCE = 16
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Converted:
    """The schema and the files of a converted folder."""

    schema: StructType
    partition_by: tuple[str, ...]
    adds: list[AddFile]

    def parameters(self, *, collect_stats: bool) -> dict[str, str]:
        """Return the operation parameters of the commit."""
        return {
            "numFiles": str(len(self.adds)),
            "partitionBy": json.dumps(list(self.partition_by), separators=(",", ":")),
            "collectStats": str(collect_stats).lower(),
        }


def convert_files(
    location: str,
    settings: StorageSettings,
    *,
    partition_schema: object = None,
    strategy: str | None = None,
    collect_stats: bool = True,
) -> Converted:
    """Read the footers of the Parquet files in a folder; skip names that start with _ or a dot."""
    storage = open_storage(location, settings)
    partitions = StructType() if partition_schema is None else schema_from_any(partition_schema)
    if next(iter(storage.list(_LOG)), None) is not None:
        # Do not convert a Delta table: not all of its files are live, so deleted rows would
        # reappear.
        raise TableExistsError(
            "The given location is already a delta table location",
            help="Load the table into the catalog with import_table.",
        )
    files = [file for file in storage.list() if _is_data(file.name)]
    if not files:
        raise TxnLogError(
            "No parquet file is found in the given location",
            prefix=GENERIC_ERROR,
            help=f"Give a folder with Parquet files: {location} has no *.parquet file.",
        )
    values = [_partition_values(file.name, partitions, strategy) for file in files]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="deltasql-files") as pool:
        read = list(pool.map(partial(_footer, storage), [file.name for file in files]))
    schema = StructType()
    for each in dict.fromkeys(found for _, found in read):
        schema = merge_schemas(schema, schema_from_any(each))
    inside = tuple(f for f in schema.fields if f.name not in partitions.names)
    whole = StructType((*inside, *partitions.fields))
    shape = _shape_of(whole, partitions.names, storage)
    adds = [
        _added(file, each, footer_statistics(footer, shape).to_json() if collect_stats else None)
        for file, each, (footer, _) in zip(files, values, read, strict=True)
    ]
    return Converted(whole, partitions.names, adds)


def _is_data(name: str) -> bool:
    hidden = any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))
    return name.endswith(".parquet") and not hidden


def _partition_values(
    name: str, partitions: StructType, strategy: str | None
) -> dict[str, str | None]:
    """Return the partition values of a file from its folder names."""
    folders = name.split("/")[:-1]
    if strategy == "directory":
        if len(folders) != len(partitions.fields):
            raise _undeclared(f"{name!r} is in {len(folders)} folders")
        return {
            field.name: unquote(folder)
            for field, folder in zip(partitions.fields, folders, strict=True)
        }
    found: dict[str, str | None] = {}
    for folder in folders:
        key, equals, value = folder.partition("=")
        if equals:
            found[unquote(key)] = None if value == _NULL_PARTITION else unquote(value)
    if set(found) != set(partitions.names):
        raise _undeclared(f"{name!r} has the partition columns {sorted(found)}")
    return {field.name: found[field.name] for field in partitions.fields}


def _undeclared(what: str) -> TxnLogSchemaError:
    return TxnLogSchemaError(
        "The schema of partition columns must be provided to convert a Parquet table "
        f"to a Delta table: {what}",
        help="Give partition_by with the names and types, and partition_strategy='hive'.",
    )


def _footer(storage: Storage, name: str) -> tuple[pq.FileMetaData, pa.Schema]:
    """Return the footer of a file, and its schema without the metadata of the fields."""
    with storage.open_input(name) as source, pq.ParquetFile(source) as opened:
        schema = pa.schema([field.remove_metadata() for field in opened.schema_arrow])
        return opened.metadata, schema


def _shape_of(schema: StructType, partitions: tuple[str, ...], storage: Storage) -> FileShape:
    def no_intents(_: list[str]) -> None:
        """Do nothing: no file is written."""

    plan = WritePlan(storage.location, storage, schema, partitions, {}, no_intents)
    return file_shape(plan)


def _added(file: FileInfo, values: dict[str, str | None], stats: str | None) -> AddFile:
    return AddFile(
        path=quote(file.name, safe="/=-_.~!$&'()*+,;@"),
        partition_values=values,
        size=file.size,
        modification_time=file.modified_ms,
        stats=stats,
    )
