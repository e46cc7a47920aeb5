"""The files of a snapshot as a DuckDB view needs them, with what is known of them already."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.engine.files.addresses import storage_of
from deltasql.engine.files.live_files import LiveFile, LiveFiles
from deltasql.engine.parquet.footers import has_timestamps, naive_timestamps
from deltasql.mirror.duckdb.views import FileGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.model.schema.schema import StructType
    from deltasql.snapshot.snapshot import Snapshot

Paths: TypeAlias = tuple[tuple[str, ...], ...]
_FOOTERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What was found out about a file earlier: it never changes."""

    naive: str
    vector: str


class ViewFiles:
    """The live files of one snapshot."""

    def __init__(self, snapshot: Snapshot, config: Config, known: Mapping[str, KnownFile]) -> None:
        self._settings, self._known = config.storage, known
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
        """Whether there is something to remember of each file."""
        live = self.live
        partitioned = bool(live.partition_columns)
        return partitioned or has_timestamps(live.schema) or live.have_deletions

    def groups(self) -> list[FileGroup]:
        """Return the files in groups that are read alike."""
        found: dict[tuple[Paths, bool, StructType], list[str]] = {}
        for schema, files in self._schemas:
            for file in files:
                alike = (self._naive.get(file.address, ()), bool(file.vector), schema)
                found.setdefault(alike, []).append(file.address)
        return [
            FileGroup(addresses, frozenset(naive), has_deletions, schema)
            for (naive, has_deletions, schema), addresses in found.items()
        ]

    def table(self) -> pa.Table:
        """Return every file with its typed partition values, as the view joins them."""
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
        """Return the files whose deleted rows are what they were."""
        return [
            file.address
            for file in self.live.files
            if file.vector and self._known.get(file.address, _UNKNOWN).vector == file.vector
        ]

    def deleted(self, without: list[str]) -> pa.Table:
        """Return every deleted row as (filename, row_number), but for some files."""
        skipped = set(without)
        return self.live.deleted([f for f in self.live.files if f.address not in skipped])

    def _naive_text(self, file: LiveFile) -> str:
        naive = self._naive.get(file.address, ())
        return json.dumps(naive) if naive else ""

    def _naive_timestamps(self) -> dict[str, Paths]:
        """Find out how new files keep their timestamps: only their footers tell."""
        live = self.live
        if not has_timestamps(live.schema):
            return {}
        found: dict[str, Paths] = {
            address: tuple(tuple(path) for path in json.loads(file.naive)) if file.naive else ()
            for address, file in self._known.items()
        }

        schemas = {f.address: schema for schema, files in self._schemas for f in files}

        def look(file: LiveFile) -> Paths:
            storage, name = storage_of(live.location, file.path, self._settings)
            with storage.open_input(name) as opened:
                paths = naive_timestamps(opened, schemas[file.address], live.column_mapping_mode)
            return tuple(sorted(paths))

        new = [file for file in live.files if file.address not in found]
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            found.update(zip([file.address for file in new], pool.map(look, new), strict=True))
        return found


_UNKNOWN = KnownFile("", "")
