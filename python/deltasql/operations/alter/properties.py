"""ALTER TABLE: set properties, name and description."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import (
    TxnLogConfigError,
    TxnLogError,
    TxnLogProtocolError,
    UnsupportedFeatureError,
)
from deltasql.exceptions.prefixes import PROPERTY_ERROR
from deltasql.model.features.iceberg_compat import enabled_compat, materializes_partitions
from deltasql.model.features.row_tracking import COLUMN_NAMES, is_enabled, with_column_names
from deltasql.model.properties import KNOWN, NAME_IN_CATALOG, check_values, stored_properties
from deltasql.model.protocol import (
    FEATURE_PREFIX,
    raised_protocol,
    upgraded_protocol,
    writer_features,
)
from deltasql.model.schema.column_mapping import (
    MODE,
    lacks_nested_ids,
    with_column_mapping,
    with_new_columns_mapped,
)
from deltasql.model.schema.schema import column_mapping_mode, nearest
from deltasql.operations.table_stage import STAGED_VERSION, add_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.operations.table_stage import TableStage

_KEPT = (
    "delta.columnMapping.",
    "delta.constraints.",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestamp",
    "delta.rowTracking.",
)
_LONGEST_NAME = 255
_LONGEST_DESCRIPTION = 4000


def set_table_properties(
    stage: TableStage, properties: Mapping[str, str], *, raise_if_not_exists: bool = True
) -> None:
    """Set table properties, and upgrade the protocol if the properties require it."""
    if raise_if_not_exists:
        _check_known(properties)
    check_values(properties)
    wanted = {**stage.configuration, **properties}
    schema = stage.schema
    before, after = column_mapping_mode(stage.configuration), column_mapping_mode(wanted)
    if after != before:
        if (before, after) != (None, "name"):
            raise TxnLogProtocolError(
                f"column mapping cannot change from {before or 'none'} to {after or 'none'}",
                table=stage.name,
                help=f"Set {MODE} to 'name' on a table without column mapping.",
            )
        schema, wanted = with_column_mapping(schema, wanted)
    _check_files(stage, wanted)
    schema, wanted = with_new_columns_mapped(schema, wanted)
    wanted = with_column_names(wanted)
    if is_enabled(wanted) and not is_enabled(stage.configuration):
        _add_row_ids(stage)
    protocol = raised_protocol(stage.protocol, properties)
    stage.change_metadata(
        replace(
            stage.metadata,
            schema_string=schema.to_json(),
            configuration=stored_properties(wanted),
        ),
        upgraded_protocol(protocol, schema, wanted),
    )
    text = json.dumps(dict(properties), separators=(",", ":"), ensure_ascii=False)
    stage.set_commit_info("SET TBLPROPERTIES", {"properties": text})


def _check_files(stage: TableStage, wanted: Mapping[str, str]) -> None:
    """Raise if Iceberg compatibility is enabled, and existing files do not meet its conditions."""
    new = set(enabled_compat(wanted)) - set(enabled_compat(stage.configuration))
    if not new:
        return
    files = stage.files()
    stage.read(whole_table=True, files=files)
    lacks_columns = stage.partition_columns and not materializes_partitions(
        stage.configuration, writer_features(stage.protocol)
    )
    may_have_rows = not stage.configuration.keys().isdisjoint(COLUMN_NAMES)
    missing = {
        "the field ids of array elements and map entries": "icebergCompatV1" not in new
        and lacks_nested_ids(stage.schema),
        "the field ids of the columns with row ids": "icebergCompatV3" in new and may_have_rows,
        "the partition columns": lacks_columns,
        "the number of rows": files["num_records"].null_count,
    }
    what = next((name for name, lacks in missing.items() if lacks), None)
    if len(files) and what:
        raise UnsupportedFeatureError(
            f"{min(new)} cannot be enabled: the existing files lack {what}",
            features=tuple(new),
            help="Create a new table with this feature, and copy the rows into it.",
        )


def _add_row_ids(stage: TableStage) -> None:
    """Add the files without row ids again, so that the commit assigns row ids to them."""
    import pyarrow.compute as pc  # lazy import: slow, and only needed here

    files = stage.files()
    stage.read(whole_table=True, files=files)
    missing = files.filter(
        pc.and_(
            pc.is_null(files["base_row_id"]), pc.not_equal(files["added_version"], STAGED_VERSION)
        )
    )
    stage.add(replace(add_file(row), data_change=False) for row in missing.to_pylist())


def unset_table_properties(
    stage: TableStage, keys: Sequence[str], *, raise_if_not_exists: bool = True
) -> None:
    """Remove table properties. The protocol stays as it is."""
    for key in keys:
        if raise_if_not_exists and key not in stage.configuration:
            raise TxnLogConfigError(
                f"the table has no property {key!r}",
                key=key,
                help=f"{nearest(key, list(stage.configuration))}Write IF EXISTS to ignore it.",
            )
        if key.startswith(_KEPT) or key == NAME_IN_CATALOG:
            raise TxnLogProtocolError(
                f"the property {key} cannot be removed",
                table=stage.name,
                help="DROP CONSTRAINT removes a constraint. Column mapping and in-commit "
                "timestamps are needed to read and to write the table.",
            )
    kept = {key: value for key, value in stage.configuration.items() if key not in keys}
    stage.change_metadata(replace(stage.metadata, configuration=kept))
    text = json.dumps(list(keys), separators=(",", ":"), ensure_ascii=False)
    stage.set_commit_info("UNSET TBLPROPERTIES", {"properties": text})


def set_table_name(stage: TableStage, name: str) -> None:
    """Set the name in the metadata. To change the name in the catalog, use `catalog.rename`."""
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise TxnLogError(
            "Table metadata is invalid: name: Table name cannot be empty and cannot exceed "
            f"{_LONGEST_NAME} characters",
            help=f"Give a name of 1 to {_LONGEST_NAME} characters; this one has {len(name)}.",
        )
    stage.change_metadata(replace(stage.metadata, name=name))
    _set_update_info(stage, name=name)


def set_table_description(stage: TableStage, description: str) -> None:
    """Set the description in the metadata."""
    if len(description) > _LONGEST_DESCRIPTION:
        raise TxnLogError(
            "Table metadata is invalid: description: Table description cannot exceed "
            f"{_LONGEST_DESCRIPTION} characters",
            help=f"Shorten the description; it has {len(description)} characters.",
        )
    stage.change_metadata(replace(stage.metadata, description=description))
    _set_update_info(stage, description=description)


def _set_update_info(stage: TableStage, **changed: str) -> None:
    update = {"name": None, "description": None, **changed}
    text = json.dumps(update, separators=(",", ":"), ensure_ascii=False)
    stage.set_commit_info("UPDATE TABLE METADATA", {"metadataUpdate": text})


def _check_known(properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if key not in KNOWN and not key.startswith(FEATURE_PREFIX):
            raise TxnLogConfigError(
                f"Error parsing property '{key}':'{value}'",
                key=key,
                prefix=PROPERTY_ERROR,
                help=f"{nearest(key, list(KNOWN))}To store a custom property, set "
                "raise_if_not_exists=False, or run ALTER TABLE … SET TBLPROPERTIES with "
                "`deltasql sql`.",
            )
