"""`write_deltalake`: deltalake's function, for `deltasql://` tables and for all others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from deltasql.uri import is_deltasql_uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from arro3.core.types import ArrowArrayExportable, ArrowStreamExportable
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties


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
    """Write rows to a table, creating it when it does not exist.

    `data` is anything Arrow-compatible: Arrow tables, readers and datasets, pandas, polars, DuckDB.
    A table object that is passed moves to the new version.

    - `mode`: `error`, the default, refuses a table that exists; `append`; `overwrite`; `ignore`
    - `predicate`: the rows that an overwrite replaces, as SQL; all of them without it
    - `schema_mode`: `merge` adds columns that the table lacks, `overwrite` takes those of the data
    - `partition_by`, `name`, `description`, `configuration`: of a table that comes into being
    - `commit_properties`: metadata of the commit, and `app_transactions` to write a batch only once
    - `target_file_size`, `writer_properties`: how Parquet files are written
    - `storage_options`: of the object store, on top of those of the configuration

    >>> import tempfile, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> write_deltalake(uri, pa.table({"id": [1, 2]}), mode="append")
    """
    from deltasql.api.deltalake_compat.handle.arguments import (
        check_mapping,
        check_names,
        check_size,
        check_text_given,
        check_texts,
    )
    from deltasql.api.deltalake_compat.handle.write import WriteSide

    handle = getattr(table_or_uri, "_table", None)
    is_handle = isinstance(handle, WriteSide)
    if is_handle or is_ours(table_or_uri):
        check_text_given(mode)
        check_texts(name, description, schema_mode, predicate)
        check_names(partition_by)
        check_size(target_file_size)
        if configuration is not None:
            check_mapping(configuration)
    write: dict[str, Any] = {
        "partition_by": partition_by,
        "mode": mode.lower() if isinstance(mode, str) else mode,
        "schema_mode": schema_mode.lower() if isinstance(schema_mode, str) else schema_mode,
        "predicate": predicate,
        "target_file_size": target_file_size,
        "name": name,
        "description": description,
        "configuration": configuration,
        "writer_properties": writer_properties,
        "commit_properties": commit_properties,
        "post_commithook_properties": post_commithook_properties,
    }
    if isinstance(handle, WriteSide):
        handle.write(data, **write)
    elif is_ours(table_or_uri):
        _write_uri(str(table_or_uri), data, storage_options, **write)
    else:
        import deltalake

        deltalake.write_deltalake(table_or_uri, data, storage_options=storage_options, **write)


def is_ours(table_or_uri: object) -> bool:
    """Tell whether a table's address is meant for us, also one that became a path.

    >>> is_ours("deltasql://sqlite/meta.db?table=t"), is_ours("/lake/sales")
    (True, False)
    """
    if isinstance(table_or_uri, os.PathLike):
        return str(os.fspath(table_or_uri)).startswith("deltasql:/")
    return is_deltasql_uri(table_or_uri)


def _write_uri(
    table_uri: str,
    data: object,
    storage_options: Mapping[str, str] | None,
    *,
    partition_by: list[str] | str | None,
    mode: str,
    name: str | None,
    description: str | None,
    configuration: Mapping[str, str | None] | None,
    schema_mode: str | None,
    predicate: str | None,
    target_file_size: int | None,
    writer_properties: WriterProperties | None,
    commit_properties: CommitProperties | None,
    post_commithook_properties: PostCommitHookProperties | None,
) -> None:
    from deltasql.api.deltalake_compat.create_by_uri import (
        leaves_existing,
        open_for_writing,
        table_properties,
    )
    from deltasql.api.deltalake_compat.handle.properties import write_options
    from deltasql.operations.rules.write_schema import move_partition_columns_last

    uri, catalog, table = open_for_writing(table_uri, storage_options)
    with leaves_existing(catalog, table, mode=mode), catalog.begin(one_table=True) as tx:
        is_new = bool(configuration) and not tx.has_table(table)
        tx.write(
            table,
            data,
            mode=mode,
            schema_mode=schema_mode,
            predicate=predicate,
            partition_by=partition_by,
            options=write_options(writer_properties, target_file_size),
            location=uri.location,
            properties=table_properties(configuration, strict=True) if is_new else None,
            title=name,
            description=description,
        )
        if schema_mode == "merge":
            move_partition_columns_last(tx.target(table))
        tx.set_commit_properties(table, commit_properties)
        tx.set_post_commit(post_commithook_properties)
