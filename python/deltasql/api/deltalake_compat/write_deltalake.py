"""`write_deltalake`: deltalake's function, which also accepts `deltasql://` URIs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import deltalake

from deltasql import deltalake_internals
from deltasql.api.arguments import (
    check_file_size,
    check_mapping,
    check_names,
    check_text,
    check_texts,
    write_options,
)
from deltasql.api.catalog.connect import is_deltasql, leaves_existing, open_for_writing
from deltasql.api.deltalake_compat.create import table_properties
from deltasql.api.deltalake_compat.handle.open_table import OpenTable
from deltasql.operations.rules.write_schema import move_partition_columns_last
from deltasql.operations.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from arro3.core.types import ArrowArrayExportable, ArrowStreamExportable
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

    from deltasql.api.transaction.transaction import MultiTableTransaction


def write_deltalake(
    table_or_uri: str | Path | DeltaTable,
    data: ArrowStreamExportable | ArrowArrayExportable | Sequence[ArrowArrayExportable],
    *,
    partition_by: list[str] | str | None = None,
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    schema_mode: Literal["merge", "overwrite"] | None = None,
    storage_options: dict[str, str] | None = None,
    predicate: str | None = None,
    target_file_size: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Write rows to a table, and create it if it does not exist.

    `data` is anything Arrow-compatible: Arrow tables, readers and datasets, pandas, polars, DuckDB.
    If `table_or_uri` is a DeltaTable, the object is updated to the new version.

    - `mode`: `error` (the default) fails if the table exists; `append`; `overwrite`; `ignore`
    - `predicate`: the rows that an overwrite replaces, as SQL; all rows by default
    - `schema_mode`: `merge` adds missing columns to the table, `overwrite` replaces its schema
    - `partition_by`, `name`, `description`, `configuration`: settings of a new table
    - `commit_properties`: metadata of the commit; its `app_transactions` prevent writing the same
      batch twice
    - `target_file_size`, `writer_properties`: size and format of the Parquet files
    - `storage_options`: options of the object store, in addition to the configuration

    >>> import tempfile, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> write_deltalake(uri, pa.table({"id": [1, 2]}), mode="append")
    """
    handle = deltalake_internals.raw_table(table_or_uri)
    save_mode: Any = mode.lower() if isinstance(mode, str) else mode
    evolution: Any = schema_mode.lower() if isinstance(schema_mode, str) else schema_mode
    if not isinstance(handle, OpenTable) and not is_deltasql(table_or_uri):
        write_stock: Any = deltalake.write_deltalake  # its overloads do not accept None
        write_stock(
            table_or_uri,
            data,
            partition_by=partition_by,
            mode=save_mode,
            name=name,
            description=description,
            configuration=configuration,
            schema_mode=evolution,
            storage_options=storage_options,
            predicate=predicate,
            target_file_size=target_file_size,
            writer_properties=writer_properties,
            commit_properties=commit_properties,
            post_commithook_properties=post_commithook_properties,
        )
        return
    check_text(mode)
    check_texts(name, description, schema_mode, predicate)
    check_names(partition_by)
    check_file_size(target_file_size)
    if configuration is not None:
        check_mapping(configuration)
    request = WriteRequest(
        mode=save_mode,
        schema_mode=evolution,
        predicate=predicate,
        partition_by=partition_by,
        options=write_options(writer_properties, target_file_size),
        title=name,
        description=description,
    )
    if isinstance(handle, OpenTable):
        write_to_table(handle, data, request, commit_properties, post_commithook_properties)
        return
    uri, catalog, table = open_for_writing(str(table_or_uri), storage_options)
    with leaves_existing(catalog, table, mode=save_mode), catalog.begin(one_table=True) as tx:
        request = replace(request, location=uri.location)
        if configuration and not tx.has_table(table):
            properties = table_properties(configuration, strict=True)
            request = replace(request, properties=properties)
        _stage_rows(tx, table, data, request)
        tx.set_commit_properties(table, commit_properties)
        tx.set_post_commit(post_commithook_properties)


def write_to_table(
    table: OpenTable,
    data: object,
    request: WriteRequest,
    commit_properties: CommitProperties | None,
    post_commithook_properties: PostCommitHookProperties | None,
) -> None:
    """Write rows based on the version of a DeltaTable, and update the object to the new version."""
    table.commit(
        lambda tx: _stage_rows(tx, table.name, data, request),
        commit_properties,
        post_commithook_properties,
    )


def _stage_rows(tx: MultiTableTransaction, table: str, data: object, request: WriteRequest) -> None:
    tx.write_rows(table, data, request)
    if request.schema_mode == "merge":
        move_partition_columns_last(tx.target(table))
