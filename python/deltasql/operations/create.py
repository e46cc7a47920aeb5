"""CREATE TABLE: the metadata and protocol a new table starts with."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from deltasql.commit.staged import Staged
from deltasql.model.actions import CommitInfo, Metadata
from deltasql.model.clock import now_ms
from deltasql.model.properties import check_properties, stored_properties
from deltasql.model.protocol import protocol_for
from deltasql.model.schema import column_mapping_mode
from deltasql.model.schema_convert import schema_from_any
from deltasql.model.schema_rules import validate_schema
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.config import Config

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
) -> Staged:
    """Stage version 0 of a new table: nothing exists before the commit."""
    columns = schema_from_any(schema)
    partitions = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    wanted = dict(properties or {})
    check_properties(wanted)
    if config.table.in_commit_timestamps:
        wanted.setdefault(_IN_COMMIT_TIMESTAMPS, "true")
    in_commit_timestamps = wanted.get(_IN_COMMIT_TIMESTAMPS) == "true"
    validate_schema(columns, partitions, column_mapping_mode(wanted))
    created_at_ms = now_ms()
    table = TableRow(
        table_id=-1,  # given by the database when the commit is ratified
        table_uuid=str(uuid.uuid4()),
        namespace=namespace,
        name=name,
        location=location,
        created_at_ms=created_at_ms,
        dropped_at_ms=None,
        properties={},
    )
    return Staged(
        table,
        creates=True,
        metadata=Metadata(
            id=table.table_uuid,
            name=name,
            description=description,
            schema_string=columns.to_json(),
            partition_columns=tuple(partitions),
            configuration=stored_properties(wanted),
            created_time=created_at_ms,
        ),
        protocol=protocol_for(columns, wanted, in_commit_timestamps=in_commit_timestamps),
        info=CommitInfo(operation="CREATE TABLE", operation_parameters={"location": location}),
    )
