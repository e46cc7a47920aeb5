"""`convert_to_deltalake`: deltalake's function, which also accepts `deltasql://` URIs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import deltalake

from deltasql.api.catalog.connect import is_deltasql, leaves_existing, open_for_writing
from deltasql.api.deltalake_compat.create import new_table, table_properties
from deltasql.exceptions import TableExistsError, TxnLogUriError
from deltasql.model.schema.column_mapping import with_column_mapping
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.operations.convert import convert_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deltalake import CommitProperties, PostCommitHookProperties, Schema


def convert_to_deltalake(
    uri: str | Path,
    mode: Literal["error", "ignore"] = "error",
    partition_by: Schema | None = None,
    partition_strategy: Literal["hive", "directory"] | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Create a table from the Parquet files of a folder; the files stay where they are.

    A `deltasql://` URI names the table; its option `?location=` is the folder.
    """
    if not is_deltasql(uri):
        named = {
            "collect_stats": None if collect_stats is True else collect_stats,
            "commit_properties": commit_properties,
            "post_commithook_properties": post_commithook_properties,
        }
        convert_stock: Any = deltalake.convert_to_deltalake
        convert_stock(
            uri,
            mode,
            partition_by,
            partition_strategy,
            name,
            description,
            configuration,
            storage_options,
            *args,
            # Older releases do not have all of these arguments.
            **{name: value for name, value in named.items() if value is not None},
        )
        return
    commit, post = _with_positional(args, commit_properties, post_commithook_properties)
    if partition_by is not None and partition_strategy is None:
        raise ValueError("Partition strategy has to be provided with partition_by.")
    if partition_strategy not in (None, "hive", "directory"):
        raise ValueError("Partition strategy must be `hive` or `directory`.")
    convert_by_uri(
        str(uri),
        partition_by,
        partition_strategy,
        name,
        description,
        configuration,
        storage_options,
        collect_stats,
        commit,
        post,
        mode=mode,
    )


def _with_positional(
    args: tuple[Any, ...],
    commit: CommitProperties | None,
    post: PostCommitHookProperties | None,
) -> tuple[CommitProperties | None, PostCommitHookProperties | None]:
    """Return the commit arguments, including those passed by position, which is deprecated."""
    if not args:
        return commit, post
    function, names = "convert_to_deltalake()", ("commit_properties", "post_commithook_properties")
    if len(args) > len(names):
        raise TypeError(f"{function} got unexpected positional arguments")
    warnings.warn(
        f"Passing commit arguments positionally to {function} is deprecated; use their names",
        DeprecationWarning,
        stacklevel=3,
    )
    for name, value, _ in zip(names, (commit, post), args, strict=False):
        if value is not None:
            raise TypeError(f"{function} got multiple values for {name!r}")
    return (args[0], args[1]) if len(args) > 1 else (args[0], post)


def convert_by_uri(
    uri: str,
    partition_schema: Schema | None = None,
    partition_strategy: str | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
    *,
    mode: str = "error",
) -> None:
    """Convert the folder of `?location=`; the signature is that of deltalake's Rust function."""
    parsed, catalog, table = open_for_writing(uri, storage_options)
    if catalog.exists(table):
        if mode == "ignore":
            return
        raise TableExistsError("The given location is already a delta table location", table=table)
    if parsed.location is None:
        raise TxnLogUriError(
            f"{parsed} does not say where the Parquet files are",
            part="location",
            help="Add ?location= with the folder of the files.",
        )
    found = convert_files(
        parsed.location,
        catalog.config.storage,
        partition_schema=partition_schema,
        strategy=partition_strategy,
        collect_stats=collect_stats,
    )
    properties = table_properties(configuration, strict=False)
    schema = found.schema
    if column_mapping_mode(properties) is not None:
        # The physical names must be the names of the columns in the existing files.
        schema, properties = with_column_mapping(schema, properties)
    with leaves_existing(catalog, table, mode=mode), catalog.begin() as tx:
        new_table(tx, parsed, schema, found.partition_by, properties, name, description)
        tx.stage_table(
            table,
            found.adds,
            operation="CONVERT",
            operation_parameters=found.parameters(collect_stats=collect_stats),
        )
        tx.set_commit_properties(table, commit_properties)
        tx.set_post_commit(post_commithook_properties)
