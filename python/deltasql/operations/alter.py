"""ALTER TABLE: properties, name and description."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError, TxnLogError, TxnLogProtocolError
from deltasql.exceptions.prefixes import PROPERTY_ERROR
from deltasql.model.properties import KNOWN, check_values, stored_properties
from deltasql.model.protocol import FEATURE_PREFIX, raised_protocol, upgraded_protocol
from deltasql.model.schema.column_mapping import MODE, with_column_mapping
from deltasql.model.schema.schema import column_mapping_mode, nearest
from deltasql.operations.commit_info import set_commit_info

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.operations.target import TableStage

_LONGEST_NAME = 255
_LONGEST_DESCRIPTION = 4000


def set_table_properties(
    target: TableStage, properties: Mapping[str, str], *, raise_if_not_exists: bool = True
) -> None:
    """Set properties; what they need of the protocol is added to it."""
    if raise_if_not_exists:
        _refuse_unknown(properties)
    check_values(properties)
    wanted = {**target.configuration, **properties}
    schema = target.schema
    before, after = column_mapping_mode(target.configuration), column_mapping_mode(wanted)
    if after != before:
        if (before, after) != (None, "name"):
            raise TxnLogProtocolError(
                f"column mapping cannot change from {before or 'none'} to {after or 'none'}",
                table=target.name,
                help=f"Set {MODE} to 'name' on a table without column mapping.",
            )
        schema, wanted = with_column_mapping(schema, wanted)
    protocol = raised_protocol(target.protocol, properties)
    target.change_metadata(
        replace(
            target.metadata,
            schema_string=schema.to_json(),
            configuration=stored_properties(wanted),
        ),
        upgraded_protocol(protocol, schema, wanted),
    )
    text = json.dumps(dict(properties), separators=(",", ":"), ensure_ascii=False)
    set_commit_info(target, "SET TBLPROPERTIES", {"properties": text})


def set_table_name(target: TableStage, name: str) -> None:
    """Set the name in the metadata; the catalog's name is another matter (`catalog.rename`)."""
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise TxnLogError(
            "Table metadata is invalid: name: Table name cannot be empty and cannot exceed "
            f"{_LONGEST_NAME} characters",
            help=f"Give a name of 1 to {_LONGEST_NAME} characters, this one has {len(name)}.",
        )
    target.change_metadata(replace(target.metadata, name=name))
    _tell_update(target, name=name)


def set_table_description(target: TableStage, description: str) -> None:
    """Set the description in the metadata."""
    if len(description) > _LONGEST_DESCRIPTION:
        raise TxnLogError(
            "Table metadata is invalid: description: Table description cannot exceed "
            f"{_LONGEST_DESCRIPTION} characters",
            help=f"Shorten it, it has {len(description)}.",
        )
    target.change_metadata(replace(target.metadata, description=description))
    _tell_update(target, description=description)


def _tell_update(target: TableStage, **changed: str) -> None:
    update = {"name": None, "description": None, **changed}
    text = json.dumps(update, separators=(",", ":"), ensure_ascii=False)
    set_commit_info(target, "UPDATE TABLE METADATA", {"metadataUpdate": text})


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if key not in KNOWN and not key.startswith(FEATURE_PREFIX):
            raise TxnLogConfigError(
                f"Error parsing property '{key}':'{value}'",
                key=key,
                prefix=PROPERTY_ERROR,
                help=f"{nearest(key, list(KNOWN))}With raise_if_not_exists=False a property "
                "of your own is kept.",
            )
