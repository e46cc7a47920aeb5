"""The files that versions changed, as a response for Spark's Parquet reader.

Versions can have different partition columns, and change data has a column more. So every schema
of the response comes with its own partition columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltasql.operations.changes.feed import ChangeFeed
from deltasql.serve.scan import FILES_PER_LINE, encoded_rows, partition_values, stored_schema
from deltasql.storage.location import address_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.operations.changes.log import ChangedFile, VersionChanges
    from deltasql.snapshot.snapshot import Snapshot


@dataclass(slots=True)
class _Group:
    """Files with the same columns in the file and the same partition columns."""

    schema: str
    partition_columns: tuple[str, ...]
    files: list[list[Any]] = field(default_factory=list)
    """The files as lists: URL, size, modification time, partition and deleted rows."""


def listed(
    catalog: Catalog, snapshot: Snapshot, versions: Sequence[VersionChanges]
) -> Iterator[dict[str, Any]]:
    """Yield the schemas and partitions of the files that versions added, then the files.

    The files are read with the columns of the snapshot. The last object says how many there are.
    """
    feed = ChangeFeed(snapshot, catalog.config)
    by_partitioning: dict[tuple[str, ...], list[ChangedFile]] = {}
    for each in versions:
        by_partitioning.setdefault(each.partitioned_by, []).extend(each.added)
    partitions: list[list[str | None]] = []
    groups: list[_Group] = []
    for partitioned_by, files in by_partitioning.items():
        groups += _groups(feed, files, partitioned_by, partitions)
    entries = [file for group in groups for file in group.files]
    yield {
        "schemas": [group.schema for group in groups],
        "partition_columns": [list(group.partition_columns) for group in groups],
        "partitions": partitions,
        "bytes": sum(file[1] for file in entries),
        "has_deleted_rows": any(len(file) > 4 for file in entries),
    }
    for number, group in enumerate(groups):
        for first in range(0, len(group.files), FILES_PER_LINE):
            yield {"schema": number, "files": group.files[first : first + FILES_PER_LINE]}
    yield {"end": len(entries)}


def _groups(
    feed: ChangeFeed,
    files: Sequence[ChangedFile],
    partitioned_by: tuple[str, ...],
    partitions: list[list[str | None]],
) -> Iterator[_Group]:
    """Yield the files in groups, and append the values of their partitions to `partitions`."""
    live = feed.live(files, partitioned_by)
    texts = list(dict.fromkeys(file.partition for file in live.files))
    numbers = {text: len(partitions) + number for number, text in enumerate(texts)}
    partitions += partition_values(live, texts)
    # A path can occur twice, for example after a restore, with other deleted rows.
    deleted = {(file.path, file.vector): rows for file, rows in live.deleted_rows(live.files)}
    sizes = {file.path: file.size for file in files}
    for schema, alike in live.by_names(live.files):
        group = _Group(stored_schema(schema, live).to_json(), live.partition_columns)
        for file in alike:
            entry = [address_url(file.address), sizes[file.path], 0, numbers[file.partition]]
            rows = deleted.get((file.path, file.vector))
            group.files.append(entry if rows is None else [*entry, encoded_rows(rows)])
        yield group
