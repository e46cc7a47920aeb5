"""CREATE TABLE and REPLACE TABLE: the metadata and protocol of a new table."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltasql.commit.staged import Staged
from deltasql.exceptions import TableExistsError, TxnLogSchemaError, TxnLogStorageError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.model.actions import CommitInfo, Metadata
from deltasql.model.clock import now_ms
from deltasql.model.features.row_tracking import with_column_names
from deltasql.model.properties import NAME_IN_CATALOG, check_properties, stored_properties
from deltasql.model.protocol import (
    FENCE,
    protocol_for,
    raised_protocol,
    upgraded_protocol,
    with_features,
)
from deltasql.model.schema.column_mapping import with_new_columns_mapped
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.identity import checked_identity
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import CURRENT_DEFAULT
from deltasql.operations.alter.cluster_by import cluster_by
from deltasql.storage import open_storage
from deltasql.storage.location import location_url
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.config import Config
    from deltasql.model.actions import Protocol
    from deltasql.model.schema.schema import StructType
    from deltasql.operations.table_stage import TableStage

_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"


def stage_create(
    namespace: str,
    name: str,
    schema: object,
    *,
    location: str,
    config: Config,
    partition_by: Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    title: str | None = None,
    allow_nested_location: bool = False,
) -> Staged:
    """Stage version 0 of a new table. Nothing is created before the commit.

    `title` is the name in the table's metadata.
    """
    wanted = dict(properties or {})
    if config.table.in_commit_timestamps:
        wanted.setdefault(_IN_COMMIT_TIMESTAMPS, "true")
    columns, partitions, wanted = _shape(schema, partition_by, wanted)
    in_commit_timestamps = wanted.get(_IN_COMMIT_TIMESTAMPS) == "true"
    created_at_ms = now_ms()
    table = TableRow(
        table_id=-1,  # the database assigns it when the commit is ratified
        table_uuid=str(uuid.uuid4()),
        namespace=namespace,
        name=name,
        location=location,
        created_at_ms=created_at_ms,
        dropped_at_ms=None,
        properties={},
    )
    metadata = Metadata(
        id=table.table_uuid,
        name=title,
        description=description,
        schema_string=columns.to_json(),
        partition_columns=tuple(partitions),
        configuration=stored_properties(wanted) | _name_in_catalog(name, location),
        created_time=created_at_ms,
    )
    protocol = raised_protocol(
        protocol_for(columns, wanted, in_commit_timestamps=in_commit_timestamps), wanted
    )
    if config.table.fence:
        protocol = with_features(protocol, [FENCE])
    return Staged(
        table,
        creates=True,
        allows_nested=allow_nested_location,
        metadata=metadata,
        protocol=protocol,
        info=CommitInfo(
            operation="CREATE TABLE",
            operation_parameters=_parameters("ErrorIfExists", location, metadata, protocol),
        ),
    )


def reject_existing_log(location: str, config: Config) -> None:
    """Raise if the folder has a `_delta_log`, because the mirror could not publish there."""
    try:
        found = next(iter(open_storage(location, config.storage).list(LOG_FOLDER)), None)
    except TxnLogStorageError:
        return  # unreachable storage does not block the commit; the mirror checks again
    if found is not None:
        raise TableExistsError(
            f"{location} holds a Delta table already ({found.name})",
            help="Import it with its history (deltasql import), or give another location.",
        )


def replace_table(
    stage: TableStage,
    schema: object,
    partition_by: Sequence[str] | str | None,
    properties: Mapping[str, str],
    *,
    title: str | None = None,
    description: str | None = None,
) -> None:
    """Stage a new schema and the removal of all rows of a table. The history is preserved."""
    kept = {k: v for k, v in stage.configuration.items() if "nCommitTimestamp" in k}
    columns, partitions, wanted = _shape(schema, partition_by, {**kept, **properties})
    replaced = stage.files()
    stage.staged.restarts_identity, stage.staged.identity = True, {}
    # Every file that another commit adds concurrently is a conflict, because it has the old schema.
    stage.read(whole_table=True, files=replaced)
    stage.remove(replaced)
    metadata = replace(
        stage.metadata,
        name=title,
        description=description,
        schema_string=columns.to_json(),
        partition_columns=tuple(partitions),
        configuration=stored_properties(wanted)
        | _name_in_catalog(stage.staged.table.name, stage.location),
        created_time=now_ms(),
    )
    cluster_by(stage, [])
    protocol = raised_protocol(stage.protocol, wanted)
    stage.change_metadata(metadata, upgraded_protocol(protocol, columns, wanted))


def record_create(stage: TableStage, mode: str, *, replaces: bool = False) -> None:
    """Set the commitInfo of CREATE TABLE, with the parameters that deltalake records."""
    stage.set_commit_info(
        "CREATE OR REPLACE TABLE" if replaces else "CREATE TABLE",
        _parameters(mode, stage.location, stage.metadata, stage.protocol),
    )


def _shape(
    schema: object, partition_by: Sequence[str] | str | None, properties: Mapping[str, str]
) -> tuple[StructType, list[str], dict[str, str]]:
    columns = schema_from_any(schema)
    if not columns.fields:
        raise TxnLogSchemaError(
            "At least one column must be defined to create a table.",
            prefix=GENERIC_ERROR,
            help="Give a schema with columns.",
        )
    partitions = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    check_properties(properties)
    mapped, wanted = with_new_columns_mapped(columns, with_column_names(properties))
    validate_schema(mapped, partitions)
    mapped = checked_identity(mapped, partitions)
    if any(CURRENT_DEFAULT in field.metadata for field in mapped.fields):
        from deltasql.operations.sql.defaults import check_defaults  # lazy import: SQL parser

        check_defaults(mapped)
    return mapped, partitions, wanted


def _name_in_catalog(name: str, location: str) -> dict[str, str]:
    """Return the property with the table's name, if the table's folder has a different name.

    `deltasql rebuild` needs the property to restore the names of a lost catalog.
    """
    folder = unquote(location.rstrip("/").rpartition("/")[2])
    return {} if folder == name else {NAME_IN_CATALOG: name}


def _parameters(mode: str, location: str, metadata: Metadata, protocol: Protocol) -> dict[str, Any]:
    return {
        "mode": mode,
        "protocol": _json(protocol.body()),
        "metadata": _json(metadata.body()),
        "location": location_url(location) + "/",
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return value.body()
