"""`convert_to_deltalake`: Parquet files become a table where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import deltalake

from deltasql.api.raw.opening import is_ours

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
    """Convert a folder of Parquet files; the `?location=` of our URIs names the folder.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> from deltasql.api.delta_table import DeltaTable
    >>> folder = tempfile.TemporaryDirectory()
    >>> pq.write_table(pa.table({"id": [1, 2]}), f"{folder.name}/part-0.parquet")
    >>> uri = f"deltasql://sqlite/{folder.name}.db?table=sales&location={folder.name}"
    >>> convert_to_deltalake(uri)
    >>> DeltaTable(uri).count()
    2
    """
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
    from deltalake._util import deprecate_positional_commit_args

    from deltasql.api import create

    if partition_by is not None and partition_strategy is None:
        raise ValueError("partition_by needs a partition_strategy: hive or directory")
    if partition_strategy not in (None, "hive", "directory"):
        raise ValueError(f"partition_strategy is hive or directory, got {partition_strategy!r}")
    commit, post = deprecate_positional_commit_args(
        "convert_to_deltalake", args, commit_properties, post_commithook_properties
    )
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
