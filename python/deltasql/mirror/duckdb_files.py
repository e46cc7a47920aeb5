"""The files of a snapshot as a DuckDB view needs them: addresses, partition values, dead rows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.engine.addresses import data_address, storage_of
from deltasql.engine.footers import has_timestamps, naive_timestamps
from deltasql.mirror.duckdb_views import FileGroup
from deltasql.model.actions import DeletionVector
from deltasql.model.deletion_vector import deleted_rows, vector_file
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.schema import StructType, column_mapping_mode
from deltasql.model.schema_convert import schema_to_arrow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.snapshot.snapshot import Snapshot

Paths: TypeAlias = tuple[tuple[str, ...], ...]
_FOOTERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What was found out about a file earlier: it never changes."""

    naive: str
    vector: str


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One live file."""

    address: str
    naive: Paths
    vector: str
    partition: str

    @property
    def naive_text(self) -> str:
        """The columns without a zone as text, to be kept beside the file."""
        return json.dumps(self.naive) if self.naive else ""


class ViewFiles:
    """The live files of one snapshot."""

    def __init__(self, snapshot: Snapshot, config: Config, known: Mapping[str, KnownFile]) -> None:
        self._snapshot, self._config, self._known = snapshot, config, known
        self._mode = column_mapping_mode(snapshot.metadata.configuration)
        listed = snapshot.scan().arrow
        paths = listed["path"].to_pylist()
        location = snapshot.table.location
        addresses = [data_address(location, path) for path in paths]
        naive = self._naive(paths, addresses)
        self.files = [
            ViewFile(address, naive.get(address, ()), vector or "", partition)
            for address, vector, partition in zip(
                addresses,
                listed["deletion_vector"].to_pylist(),
                listed["partition"].to_pylist(),
                strict=True,
            )
        ]

    @property
    def have_deletions(self) -> bool:
        return any(file.vector for file in self.files)

    @property
    def need_table(self) -> bool:
        """Whether there is something to remember of each file."""
        snapshot = self._snapshot
        partitioned = bool(snapshot.partition_columns)
        return partitioned or has_timestamps(snapshot.schema) or self.have_deletions

    def groups(self) -> list[FileGroup]:
        """Return the files in groups that are read alike."""
        found: dict[tuple[Paths, bool], list[str]] = {}
        for file in self.files:
            found.setdefault((file.naive, bool(file.vector)), []).append(file.address)
        return [
            FileGroup(addresses, frozenset(naive), has_deletions)
            for (naive, has_deletions), addresses in found.items()
        ]

    def table(self) -> pa.Table:
        """Return every file with its typed partition values, as the view joins them."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "filename": pa.array([file.address for file in self.files], pa.string()),
            "naive": pa.array([file.naive_text for file in self.files], pa.string()),
            "vector": pa.array([file.vector for file in self.files], pa.string()),
        }
        distinct = {file.partition: json.loads(file.partition) for file in self.files}
        for number, name in enumerate(self._snapshot.partition_columns):
            field = self._snapshot.schema.find(name)
            assert field is not None
            key = field.physical_name(self._mode)
            kind = schema_to_arrow(StructType((field,))).field(0).type
            values = {
                text: parse_partition_value(partition.get(key), field.type)
                for text, partition in distinct.items()
            }
            columns[f"p{number}"] = pa.array([values[file.partition] for file in self.files], kind)
        return pa.table(columns)

    def unchanged_vectors(self) -> list[str]:
        """Return the files whose deleted rows are what they were."""
        none = KnownFile("", "")
        return [
            file.address
            for file in self.files
            if file.vector and self._known.get(file.address, none).vector == file.vector
        ]

    def deleted(self, without: Collection[str]) -> pa.Table:
        """Return every deleted row as (filename, row_number), but for some files."""
        import pyarrow as pa

        contents: dict[str, bytes] = {}
        names: list[pa.Array] = []
        rows: list[pa.Array] = []
        skipped = set(without)
        for file in self.files:
            if file.vector and file.address not in skipped:
                vector = DeletionVector.from_body(json.loads(file.vector))
                numbers = deleted_rows(vector, self._content(vector, contents))
                rows.append(pa.array(numbers, pa.int64()))
                names.append(pa.repeat(pa.scalar(file.address), len(numbers)))
        return pa.table(
            {
                "filename": pa.chunked_array(names, pa.string()),
                "row_number": pa.chunked_array(rows, pa.int64()),
            }
        )

    def _content(self, vector: DeletionVector, contents: dict[str, bytes]) -> bytes | None:
        path = vector_file(vector)
        if path is None:
            return None
        if path not in contents:  # one file holds the vectors of many
            location, settings = self._snapshot.table.location, self._config.storage
            storage, name = storage_of(location, path, settings)
            contents[path] = storage.read(name)
        return contents[path]

    def _naive(self, paths: Sequence[str], addresses: Sequence[str]) -> dict[str, Paths]:
        schema = self._snapshot.schema
        if not has_timestamps(schema):
            return {}
        found: dict[str, Paths] = {
            address: tuple(tuple(path) for path in json.loads(file.naive)) if file.naive else ()
            for address, file in self._known.items()
        }
        location, settings = self._snapshot.table.location, self._config.storage

        def look(path: str) -> Paths:
            storage, name = storage_of(location, path, settings)
            with storage.open_input(name) as opened:
                return tuple(sorted(naive_timestamps(opened, schema, self._mode)))

        new = [(p, a) for p, a in zip(paths, addresses, strict=True) if a not in found]
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            looks = pool.map(look, [path for path, _ in new])
            found.update(zip([address for _, address in new], looks, strict=True))
        return found
