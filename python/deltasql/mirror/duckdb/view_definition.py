"""Define the DuckDB view of one table: its SELECT statement and the metadata of its files.

The result of the view does not depend on the time zone of the session.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.engine.duckdb.scan import (
    NO_PATHS,
    ColumnPath,
    TableShape,
    as_pattern,
    empty_query,
    files_query,
    literal,
)
from deltasql.engine.files.live_files import LiveFile, LiveFiles
from deltasql.engine.parquet.footers import has_timestamps, naive_timestamps
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import has_nanoseconds, has_variant
from deltasql.storage import storage_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.model.schema.schema import StructType
    from deltasql.snapshot.snapshot import Snapshot

Paths: TypeAlias = tuple[tuple[str, ...], ...]
_PARALLEL_FOOTERS = 8


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that one SELECT of the view can read together."""

    addresses: Sequence[str]
    naive: Set[ColumnPath] = NO_PATHS
    """Physical paths of timestamps that these files store without a time zone."""
    has_deletions: bool = False
    schema: StructType | None = None
    """The schema of these files, if it differs from the schema of the table."""


def view_query(shape: TableShape, groups: Sequence[FileGroup]) -> str:
    """Return the SELECT statement of a view over these files."""
    unsupported = [column.name for column in shape.schema.fields if has_nanoseconds(column.type)]
    if unsupported:
        raise UnsupportedFeatureError(
            f"column {unsupported[0]!r}: a DuckDB view would truncate nanoseconds to microseconds",
            features=("timestampNanos",),
            help="Query this table with catalog.query(), or exclude it with tables=[…].",
        )
    variants = [column.name for column in shape.schema.fields if has_variant(column.type)]
    if variants:
        raise UnsupportedFeatureError(
            f"column {variants[0]!r}: DuckDB does not read columns of type variant",
            features=("variantType",),
            help="Query this table with catalog.query(), or exclude it with tables=[…].",
        )
    if not groups:
        return empty_query(shape.schema)
    return "\nUNION ALL ".join(
        files_query(
            replace(shape, schema=group.schema or shape.schema),
            f"[{', '.join(literal(as_pattern(address)) for address in group.addresses)}]",
            naive=group.naive,
            has_deletions=group.has_deletions,
        )
        for group in groups
    )


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Metadata of a file from an earlier refresh; it is valid because data files never change."""

    naive: str
    vector: str


class ViewFiles:
    """The live files of a snapshot, with the metadata that the view needs."""

    def __init__(
        self, snapshot: Snapshot, config: Config, earlier: Mapping[str, FileMetadata]
    ) -> None:
        self._settings, self._earlier = config.storage, earlier
        self.live = LiveFiles(
            snapshot.table.location, snapshot.metadata, snapshot.scan().arrow, config.storage
        )
        self._schemas = self.live.by_names(self.live.files)
        self._naive = self._naive_timestamps()

    @property
    def have_deletions(self) -> bool:
        return self.live.have_deletions

    @property
    def need_table(self) -> bool:
        """Whether the catalog file needs a table with the metadata of each file."""
        live = self.live
        partitioned = bool(live.partition_columns)
        return partitioned or has_timestamps(live.schema) or live.have_deletions

    def groups(self) -> list[FileGroup]:
        """Return the files in groups, so that one SELECT can read all files of a group."""
        found: dict[tuple[Paths, bool, StructType], list[str]] = {}
        for schema, files in self._schemas:
            for file in files:
                key = (self._naive.get(file.address, ()), bool(file.vector), schema)
                found.setdefault(key, []).append(file.address)
        return [
            FileGroup(addresses, frozenset(naive), has_deletions, schema)
            for (naive, has_deletions, schema), addresses in found.items()
        ]

    def table(self) -> pa.Table:
        """Return every file with its typed partition values, for the join in the view."""
        import pyarrow as pa

        files = self.live.files
        columns: dict[str, Any] = {
            "filename": pa.array([file.address for file in files], pa.string()),
            "naive": pa.array([self._naive_text(file) for file in files], pa.string()),
            "vector": pa.array([file.vector for file in files], pa.string()),
        }
        for number, (_, values) in enumerate(self.live.partition_values(files)):
            columns[f"p{number}"] = values
        return pa.table(columns)

    def unchanged_vectors(self) -> list[str]:
        """Return the files whose deletion vector has not changed since the last refresh."""
        return [
            file.address
            for file in self.live.files
            if file.vector and self._earlier.get(file.address, _NO_METADATA).vector == file.vector
        ]

    def deleted(self, without: list[str]) -> pa.Table:
        """Return the deleted rows as (filename, row_number), except for the files in `without`."""
        import pyarrow as pa

        skipped = set(without)
        files = [file for file in self.live.files if file.address not in skipped]
        deleted = self.live.deleted(files)
        names = pa.array([file.address for file in files], pa.string())
        return pa.table(
            {"filename": names.take(deleted["file_index"]), "row_number": deleted["row_number"]}
        )

    def _naive_text(self, file: LiveFile) -> str:
        naive = self._naive.get(file.address, ())
        return json.dumps(naive) if naive else ""

    def _naive_timestamps(self) -> dict[str, Paths]:
        """Return each file's timestamps without a time zone; the footers of new files are read."""
        live = self.live
        if not has_timestamps(live.schema):
            return {}
        found: dict[str, Paths] = {
            address: tuple(tuple(path) for path in json.loads(file.naive)) if file.naive else ()
            for address, file in self._earlier.items()
        }

        schemas = {f.address: schema for schema, files in self._schemas for f in files}

        def read_footer(file: LiveFile) -> Paths:
            storage, name = storage_of(live.location, file.path, self._settings)
            with storage.open_input(name) as opened:
                paths = naive_timestamps(opened, schemas[file.address], live.column_mapping_mode)
            return tuple(sorted(paths))

        new = [file for file in live.files if file.address not in found]
        with ThreadPoolExecutor(_PARALLEL_FOOTERS) as pool:
            found.update(
                zip([file.address for file in new], pool.map(read_footer, new), strict=True)
            )
        return found


_NO_METADATA = FileMetadata("", "")
