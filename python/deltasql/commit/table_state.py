"""The state of a table that a commit is checked against.

It consists of the metadata, the protocol, and values derived from both, such as features, partition
columns and table properties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import InvalidActionError, TxnLogSchemaError
from deltasql.model.features.iceberg_compat import check_iceberg_compat, enabled_compat
from deltasql.model.features.row_tracking import assigns_ids
from deltasql.model.properties import TableProperties, check_values
from deltasql.model.protocol import check_valid, check_writable, required_features, writer_features
from deltasql.model.schema.column_mapping import check_mapping
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import StructType, column_mapping_mode, skipping_columns

if TYPE_CHECKING:
    from deltasql.model.actions import Metadata, Protocol
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head, SkippingColumn
    from deltasql.store.store import Store


@dataclass(frozen=True, slots=True)
class TableState:
    """The current metadata and protocol of a table, with values derived from them."""

    metadata: Metadata
    protocol: Protocol
    features: frozenset[str]
    partition_columns: tuple[str, ...]
    partition_keys: frozenset[str]
    append_only: bool
    in_commit_timestamps: bool
    isolation_level: str | None
    assigns_row_ids: bool
    iceberg_compat: tuple[str, ...]
    skipping: tuple[tuple[tuple[str, ...], str], ...]
    active_columns: tuple[SkippingColumn, ...] = ()


def table_state(
    metadata: Metadata, protocol: Protocol, active_columns: tuple[SkippingColumn, ...] = ()
) -> TableState:
    """Derive the state of a table; raise if the protocol needs a feature we cannot write."""
    schema = StructType.from_json(metadata.schema_string)
    check_writable(protocol)
    properties = TableProperties(metadata.configuration)
    features = writer_features(protocol)
    partitions = physical_partition_columns(metadata, schema)
    return TableState(
        metadata=metadata,
        protocol=protocol,
        features=features,
        partition_columns=partitions,
        partition_keys=frozenset(partitions),
        append_only="appendOnly" in features and properties.append_only,
        in_commit_timestamps="inCommitTimestamp" in features and properties.in_commit_timestamps,
        isolation_level=properties.isolation_level,
        assigns_row_ids=assigns_ids(metadata.configuration, features),
        iceberg_compat=tuple(enabled_compat(metadata.configuration)),
        skipping=tuple(
            skipping_columns(schema, metadata.partition_columns, metadata.configuration)
        ),
        active_columns=active_columns,
    )


class TableStates:
    """A cache of the latest states of a store's tables."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.latest: dict[int, tuple[int, int, TableState]] = {}
        """For each table id: (metadata version, protocol version, state) as last read."""

    def read(self, session: Session, head: Head) -> TableState:
        """Return the state of a table at its latest version."""
        store, table_id = self._store, head.table_id
        versions = (head.metadata_version, head.protocol_version)
        known = self.latest.get(table_id)
        if known is not None and known[:2] == versions:
            return known[2]
        columns = store.skipping_columns(table_id, head.metadata_version, session)
        state = table_state(
            store.metadata(table_id, head.metadata_version, session),
            store.protocol(table_id, head.protocol_version, session),
            tuple(column for column in columns if column.end_file_id is None),
        )
        self.latest[table_id] = (*versions, state)
        return state


def state_after(
    before: TableState,
    metadata: Metadata | None,
    protocol: Protocol | None,
    *,
    version: int,
    timestamp_ms: int,
) -> TableState:
    """Return the state after a commit; `metadata` and `protocol` are None if unchanged."""
    if metadata is None and protocol is None:
        return before
    if metadata is None:
        metadata = before.metadata
    else:
        metadata = enable_timestamps(metadata, before, version, timestamp_ms)
    protocol = protocol or before.protocol
    validate_table(metadata, protocol)
    return table_state(metadata, protocol, before.active_columns)


def enable_timestamps(
    metadata: Metadata, before: TableState, version: int, timestamp_ms: int
) -> Metadata:
    """Add the version and time of enablement if this commit enables in-commit timestamps."""
    turns_on = metadata.configuration.get("delta.enableInCommitTimestamps") == "true"
    if not turns_on or before.in_commit_timestamps:
        return metadata
    properties = {
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": str(timestamp_ms),
    }
    return replace(metadata, configuration={**metadata.configuration, **properties})


def physical_partition_columns(metadata: Metadata, schema: StructType) -> tuple[str, ...]:
    """Return the physical names of the partition columns, as used in partition values."""
    mode = column_mapping_mode(metadata.configuration)
    fields = {field.name: field for field in schema.fields}
    unknown = next((name for name in metadata.partition_columns if name not in fields), None)
    if unknown is not None:
        raise TxnLogSchemaError(
            f"the table is partitioned by {unknown!r}, which is not one of its columns",
            column=unknown,
            help="Write the metadata again, with this column in the schema.",
        )
    return tuple(fields[name].physical_name(mode) for name in metadata.partition_columns)


def validate_table(metadata: Metadata, protocol: Protocol) -> None:
    """Check new metadata and protocol: the schema, the properties and the required features."""
    schema = StructType.from_json(metadata.schema_string)
    validate_schema(schema, metadata.partition_columns)
    check_values(metadata.configuration)
    check_mapping(schema, metadata.configuration)
    check_valid(protocol)
    check_writable(protocol)
    check_iceberg_compat(schema, metadata.configuration, writer_features(protocol))
    missing = required_features(schema, metadata.configuration) - writer_features(protocol)
    if missing:
        raise InvalidActionError(
            "the schema or properties need table features that the protocol lacks: "
            + ", ".join(sorted(missing)),
            help="Stage a protocol action with these features in the same commit.",
        )
