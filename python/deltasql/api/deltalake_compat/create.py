"""Create `deltasql://` tables with the functions and signatures of deltalake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.api.arguments import (
    check_add_actions,
    check_flags,
    check_schema,
)
from deltasql.api.catalog.connect import leaves_existing, open_for_writing
from deltasql.exceptions import TableExistsError, TxnLogConfigError, TxnLogError
from deltasql.exceptions.prefixes import GENERIC_ERROR, PROPERTY_ERROR
from deltasql.model.properties import KNOWN, unknown_properties
from deltasql.model.protocol import CONSTRAINT_PREFIX, FEATURE_PREFIX
from deltasql.operations.create import record_create, replace_table
from deltasql.operations.external_writes.actions import file_actions
from deltasql.operations.write import MODES, check_modes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.operations.table_stage import TableStage
    from deltasql.uri import DeltaSqlUri


def create_deltalake(
    table_uri: str,
    schema: object,
    partition_by: Sequence[str] = (),
    mode: str = "error",
    raise_if_key_not_exists: bool = True,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Create an empty table; `overwrite` replaces an existing table, `ignore` keeps it."""
    create_table_with_add_actions(
        table_uri,
        schema,
        (),
        mode,
        partition_by,
        name,
        description,
        configuration,
        storage_options,
        commit_properties,
        post_commithook_properties,
        raise_if_key_not_exists=raise_if_key_not_exists,
    )


def create_table_with_add_actions(
    table_uri: str,
    schema: object,
    add_actions: Sequence[object],
    mode: str = "error",
    partition_by: Sequence[str] | str = (),
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
    *,
    raise_if_key_not_exists: bool = True,
) -> None:
    """Create a table from data files that exist already."""
    check_schema(schema)
    check_flags(raise_if_key_not_exists)
    check_add_actions(add_actions)
    uri, catalog, table = open_for_writing(table_uri, storage_options)
    wanted = mode.lower()
    check_modes(wanted)
    properties = table_properties(configuration, strict=raise_if_key_not_exists)
    exists = catalog.exists(table)
    if exists and wanted == "ignore":
        return
    if exists and wanted != "overwrite":
        _raise_exists(wanted, table)
    with leaves_existing(catalog, table, mode=wanted), catalog.begin() as tx:
        if exists:
            unknown = unknown_properties(properties)
            replace_table(
                tx.target_to_change(table),
                schema,
                partition_by,
                {key: value for key, value in properties.items() if key not in unknown},
                title=name,
                description=description,
            )
            _keep_unknown(tx.target(table), unknown)
        else:
            replaces = wanted == "overwrite"
            new_table(tx, uri, schema, partition_by, properties, name, description, replaces)
        if add_actions:
            tx.stage_table(table, file_actions(list(add_actions), tx.target(table).location))
        record_create(tx.target(table), MODES[wanted], replaces=wanted == "overwrite")
        tx.set_commit_properties(table, commit_properties)
        tx.set_post_commit(post_commithook_properties)


def new_table(
    tx: MultiTableTransaction,
    uri: DeltaSqlUri,
    schema: object,
    partition_by: Sequence[str] | str | None,
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    replaces: bool = False,
) -> None:
    """Stage the table that a URI names, at the location in the URI if it contains one."""
    unknown = unknown_properties(properties)
    create = tx.create_missing if replaces else tx.create_table
    create(
        str(uri.table_name),
        schema,
        location=uri.location,
        partition_by=partition_by,
        properties={key: value for key, value in properties.items() if key not in unknown},
        description=description,
        title=name,
    )
    _keep_unknown(tx.target(str(uri.table_name)), unknown)


def _keep_unknown(target: TableStage, unknown: Mapping[str, str]) -> None:
    """Add properties that Delta does not define but deltalake's API accepts."""
    if unknown:
        configuration = {**target.configuration, **unknown}
        target.change_metadata(replace(target.metadata, configuration=configuration))


def table_properties(
    configuration: Mapping[str, str | None] | None, *, strict: bool
) -> dict[str, str]:
    """Return the properties that have a value; with `strict`, raise for names unknown to Delta."""
    given = {key: value for key, value in (configuration or {}).items() if value is not None}
    for key, value in given.items():
        known = key in KNOWN or key.startswith((FEATURE_PREFIX, CONSTRAINT_PREFIX))
        if strict and not known:
            raise TxnLogConfigError(
                f"Error parsing property '{key}':'{value}'",
                key=key,
                prefix=PROPERTY_ERROR,
                help="Use a property of Delta, or create the table with "
                "raise_if_key_not_exists=False.",
            )
    return given


def _raise_exists(mode: str, table: str) -> None:
    if mode == "append":
        raise TxnLogError(
            "SaveMode `append` is not allowed for create operation.",
            prefix=GENERIC_ERROR,
            help="Use 'error', 'ignore' or 'overwrite'.",
        )
    raise TableExistsError(
        "A Delta Lake table already exists at that location.", table=table, prefix=GENERIC_ERROR
    )
