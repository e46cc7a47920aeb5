"""The files that versions changed, as a response for Spark's Parquet reader.

Versions can have different partition columns, and files of change data have an additional column.
So every schema of the response comes with its own partition columns. In a change feed, the columns
that are the same for all rows of a file are partition columns too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltasql.engine.base import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from deltasql.operations.changes.feed import ChangeFeed
from deltasql.serve.read.scan import FILES_PER_LINE, encoded_rows, partition_values, stored_schema
from deltasql.storage.location import address_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.operations.changes.log import ChangedFile, VersionChanges
    from deltasql.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Kind:
    """What files must have in common to be read alike."""

    partitioned_by: tuple[str, ...]
    is_change_data: bool = False
    cancel_out: int | None = None
    """The version whose added and removed rows cancel out, or None."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, and the values that the change feed adds to its rows."""

    file: ChangedFile
    constants: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    """Files with the same columns in the file and the same partition columns."""

    schema: str
    partition_columns: tuple[str, ...]
    cancel_out: int | None
    files: list[list[Any]] = field(default_factory=list)
    """The files as lists: URL, size, modification time, partition and deleted rows."""


def added_files(
    catalog: Catalog, snapshot: Snapshot, versions: Iterable[VersionChanges]
) -> Iterator[dict[str, Any]]:
    """Yield the schemas and partitions of the files that versions added, then the files.

    The files are read with the columns of the snapshot. The last object says how many there are.
    """
    kinds: dict[_Kind, list[_Part]] = {}
    for each in versions:
        parts = kinds.setdefault(_Kind(each.partitioned_by), [])
        parts += [_Part(file) for file in each.added]
    return _response(ChangeFeed(snapshot, catalog.config), kinds, ())


def feed_files(
    catalog: Catalog,
    snapshot: Snapshot,
    versions: Iterable[VersionChanges],
    *,
    cancel_out: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield the same for the files of a change feed.

    With `cancel_out`, rows that a version both removed and added are not changes. The client must
    leave them out.
    """
    kinds: dict[_Kind, list[_Part]] = {}
    for each in versions:
        constants = (str(each.version), str(each.committed_at_ms * 1000))
        if each.change_data:
            parts = kinds.setdefault(_Kind(each.partitioned_by, is_change_data=True), [])
            parts += [_Part(file, constants) for file in each.change_data]
            continue
        cancels = each.version if cancel_out and each.added and each.removed else None
        for name, files, partitioned_by in (
            ("insert", each.added, each.partitioned_by),
            ("delete", each.removed, each.partitioned_before),
        ):
            parts = kinds.setdefault(_Kind(partitioned_by, cancel_out=cancels), [])
            parts += [_Part(file, (*constants, name)) for file in files]
    columns = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)
    return _response(ChangeFeed(snapshot, catalog.config), kinds, columns)


def _response(
    feed: ChangeFeed, kinds: dict[_Kind, list[_Part]], constants: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    partitions: list[list[str | None]] = []
    groups: list[_Group] = []
    for kind, parts in kinds.items():
        if parts:
            groups += _groups(feed, kind, parts, constants, partitions)
    entries = [file for group in groups for file in group.files]
    yield {
        "schemas": [group.schema for group in groups],
        "partition_columns": [list(group.partition_columns) for group in groups],
        "cancel_out": [group.cancel_out for group in groups],
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
    kind: _Kind,
    parts: list[_Part],
    constants: tuple[str, ...],
    partitions: list[list[str | None]],
) -> list[_Group]:
    """Return the files in groups, and append the values of their partitions to `partitions`."""
    files = [part.file for part in parts]
    live = feed.live(files, kind.partitioned_by, change_data=kind.is_change_data)
    # The rows of change data have a change type of their own.
    columns = (*live.partition_columns, *constants[: len(parts[0].constants)])
    deleted = {(file.path, file.vector): rows for file, rows in live.deleted_rows(live.files)}
    texts = list(dict.fromkeys(file.partition for file in live.files))
    values = dict(zip(texts, partition_values(live, texts), strict=True))
    numbers: dict[tuple[str, tuple[str, ...]], int] = {}
    entries: dict[int, list[Any]] = {}
    for file, part in zip(live.files, parts, strict=True):
        key = (file.partition, part.constants)
        if key not in numbers:
            numbers[key] = len(partitions)
            partitions.append([*values[file.partition], *part.constants])
        entry = [address_url(file.address), part.file.size, 0, numbers[key]]
        rows = deleted.get((file.path, file.vector))
        entries[id(file)] = entry if rows is None else [*entry, encoded_rows(rows)]
    groups = []
    for schema, alike in live.by_names(live.files):
        stored = stored_schema(schema, live).to_json()
        group = _Group(stored, columns, kind.cancel_out, [entries[id(file)] for file in alike])
        groups.append(group)
    return groups
