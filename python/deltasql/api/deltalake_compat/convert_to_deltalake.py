"""`convert_to_deltalake`: deltalake's function, which also accepts `deltasql://` URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from deltasql.api.deltalake_compat.handle.opening import is_ours

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
    import deltalake
    from deltalake._util import deprecate_positional_commit_args

    if not is_ours(uri):
        deltalake.convert_to_deltalake(
            uri,
            mode,
            partition_by,
            partition_strategy,
            name,
            description,
            configuration,
            storage_options,
            *args,
            collect_stats=collect_stats,
            commit_properties=commit_properties,
            post_commithook_properties=post_commithook_properties,
        )
        return
    from deltasql.api.deltalake_compat import create_by_uri as create

    commit, post = deprecate_positional_commit_args(
        "convert_to_deltalake", args, commit_properties, post_commithook_properties
    )
    if partition_by is not None and partition_strategy is None:
        raise ValueError("Partition strategy has to be provided with partition_by.")
    if partition_strategy not in (None, "hive", "directory"):
        raise ValueError("Partition strategy must be `hive` or `directory`.")
    create.convert_to_deltalake(
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
