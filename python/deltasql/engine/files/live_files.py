"""The live files of a table, with what an engine needs to read them.

This is the path or URL, the partition values and the deleted rows of each file.
"""

from __future__ import annotations

import json
from array import array
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_errors import convert_read_errors, missing_file
from deltasql.engine.parquet.footers import named_as_in_file
from deltasql.model.actions import DeletionVector
from deltasql.model.deletion_vector import row_set, vector_file
from deltasql.model.features.row_tracking import materialized_columns
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import StructType, column_mapping_mode, schema_of
from deltasql.storage import storage_of
from deltasql.storage.location import data_addresses

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from deltasql._core import RowSet
    from deltasql.config import StorageSettings
    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import StructField

_FOOTERS_AT_ONCE = 8
_LISTED = ("path", "partition", "deletion_vector", "size", "modification_time", "num_records")


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One file with the fields of its action in the log."""

    path: str
    address: str
    partition: str
    """The partition values as JSON, by physical name."""
    vector: str
    """The deletion vector as JSON; empty if there is none."""
    size: int | None
    modified_ms: int | None
    records: int | None = None


class LiveFiles:
    """Files of one table at one version, with the schema and column mapping for reading them."""

    def __init__(
        self, location: str, metadata: Metadata, listed: pa.Table, settings: StorageSettings
    ) -> None:
        """`listed` has the columns of a scan; sizes and modification times may be missing."""
        self.location, self.settings = location, settings
        self.listed = listed
        self.schema = schema_of(metadata.schema_string)
        self.column_mapping_mode = column_mapping_mode(metadata.configuration)
        self.partition_columns = tuple(metadata.partition_columns)
        self.row_columns = materialized_columns(metadata.configuration)
        """The columns of files for row ids and commit versions; empty without row tracking."""

    def with_row_columns(self) -> LiveFiles:
        """Return the same files with a schema that also has `row_columns`."""
        found = copy(self)
        found.schema = StructType((*self.schema.fields, *self.row_columns))
        return found

    @cached_property
    def files(self) -> list[LiveFile]:
        """The files as Python objects. If there are many files, use `listed`, which is faster."""
        listed, known = self.listed, self.listed.column_names
        columns: list[list[Any]] = [
            listed[name].to_pylist() if name in known else [None] * listed.num_rows
            for name in _LISTED
        ]
        addresses = data_addresses(self.location, columns[0])
        return [
            LiveFile(path, address, partition or "{}", vector or "", *rest)
            for address, path, partition, vector, *rest in zip(addresses, *columns, strict=True)
        ]

    @property
    def partitions(self) -> pa.Array:
        """The partition values of each file as JSON, by physical name."""
        return self._texts("partition", "{}")

    @property
    def have_vectors(self) -> pa.Array:
        """Whether each file has a deletion vector."""
        import pyarrow.compute as pc

        return pc.not_equal(self._texts("deletion_vector", ""), "")

    def _texts(self, name: str, missing: str) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self.listed.column_names:
            return pa.repeat(pa.scalar(missing), self.listed.num_rows)
        found = self.listed[name].cast(pa.string()).combine_chunks()
        return pc.if_else(pc.equal(pc.fill_null(found, ""), ""), missing, found)

    def stats(self) -> list[str | None]:
        """Return the statistics of each file as JSON, unchanged from the log."""
        if "stats" not in self.listed.column_names:
            return [None] * self.listed.num_rows
        found: list[str | None] = self.listed["stats"].to_pylist()
        return found

    @property
    def have_deletions(self) -> bool:
        """Whether any file has a deletion vector."""
        import pyarrow.compute as pc

        return bool(pc.any(self.have_vectors).as_py())

    def by_names(self, files: Sequence[LiveFile]) -> list[tuple[StructType, list[LiveFile]]]:
        """Group files by their column names, and return each group with the schema to read it.

        Usually there is one group, with the schema of the table. If columns are mapped by id, the
        names can differ between files, so the field ids in each file's footer are read.
        """
        if self.column_mapping_mode != "id":
            return [(self.schema, list(files))]
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            schemas = pool.map(self._schema_of, files)
            groups: dict[StructType, list[LiveFile]] = {}
            for schema, file in zip(schemas, files, strict=True):
                groups.setdefault(schema, []).append(file)
        return list(groups.items())

    def _schema_of(self, file: LiveFile) -> StructType:
        import pyarrow.parquet as pq

        storage, name = storage_of(self.location, file.path, self.settings)
        with convert_read_errors(file.path, self.location), storage.open_input(name) as opened:
            return named_as_in_file(self.schema, pq.read_schema(opened), file.path)

    def partition_fields(self) -> list[StructField]:
        """Return the partition columns, in the order of the partitioning."""
        found = [self.schema.find(name) for name in self.partition_columns]
        return [field for field in found if field is not None]

    def partition_values(self, files: Sequence[LiveFile]) -> list[tuple[StructField, pa.Array]]:
        """Return each partition column with its typed values, one per file."""
        return self.values_of([file.partition for file in files])

    def listed_values(self) -> list[tuple[StructField, pa.Array]]:
        """Return each partition column with its typed values, one per listed file."""
        encoded = self.partitions.dictionary_encode()
        distinct = self.values_of(encoded.dictionary.to_pylist())
        return [(field, values.take(encoded.indices)) for field, values in distinct]

    def values_of(self, partitions: Sequence[str]) -> list[tuple[StructField, pa.Array]]:
        """Return each partition column with its typed values, one for each string `partitions`."""
        import pyarrow as pa

        distinct = {text: json.loads(text) for text in set(partitions)}
        columns = []
        for field in self.partition_fields():
            key = field.physical_name(self.column_mapping_mode)
            kind = schema_to_arrow(StructType((field,))).field(0).type
            values = {
                text: parse_partition_value(partition.get(key), field.type)
                for text, partition in distinct.items()
            }
            columns.append((field, pa.array([values[text] for text in partitions], kind)))
        return columns

    def deleted(self, files: Collection[LiveFile]) -> pa.Table:
        """Return the deleted rows of files as a table with the columns file_index and row_number.

        `file_index` is the position of the file in `files`.
        """
        import pyarrow as pa

        positions = {id(file): index for index, file in enumerate(files)}
        indexes: list[Any] = []
        rows: list[Any] = []
        for file, numbers in self.deleted_rows(files):
            rows.append(pa.array(numbers, pa.int64()))
            index = pa.scalar(positions[id(file)], pa.uint64())
            indexes.append(pa.repeat(index, len(numbers)))
        return pa.table(
            {
                "file_index": pa.chunked_array(indexes, pa.uint64()),
                "row_number": pa.chunked_array(rows, pa.int64()),
            }
        )

    def deleted_rows(self, files: Iterable[LiveFile]) -> Iterator[tuple[LiveFile, array[int]]]:
        """Yield each file with a deletion vector, and its deleted rows in ascending order."""
        for file, rows in self.row_sets(files):
            yield file, array("q", rows.positions())

    def row_sets(self, files: Iterable[LiveFile]) -> Iterator[tuple[LiveFile, RowSet]]:
        """Yield each file with a deletion vector, and its deleted rows as a set."""
        contents: dict[str, bytes] = {}
        for file in files:
            if file.vector:
                vector = DeletionVector.from_body(json.loads(file.vector))
                yield file, row_set(vector, self._content(vector, contents))

    def _content(self, vector: DeletionVector, contents: dict[str, bytes]) -> bytes | None:
        path = vector_file(vector)
        if path is None:
            return None
        if path not in contents:  # one file holds many vectors
            storage, name = storage_of(self.location, path, self.settings)
            try:
                contents[path] = storage.read(name)
            except FileNotFoundError as error:
                raise missing_file(path, self.location, "deletion vector file") from error
        return contents[path]
