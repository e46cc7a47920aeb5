"""FilesSide: the live files of a version, in the formats of deltalake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from arro3.core import RecordBatchReader, Table

from deltasql.api.deltalake_compat.handle.arguments import (
    check_columns,
    check_flags,
    check_partition_values,
)
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.engine.files.addresses import data_addresses
from deltasql.engine.files.live_files import LiveFiles
from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import column_mapping_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.dataset as pds
    from arro3.core.types import ArrowSchemaExportable
    from sqlglot import exp

    from deltasql.model.predicates.predicate import Predicate

    Pruning = str | Sequence[Any] | exp.Expr | Predicate

_FEW_FILES = 10_000


class FilesSide(RawBase):
    """Listings of live files; a predicate skips files that cannot contain a matching row."""

    def listed(self, predicate: Pruning | None = None) -> pa.Table:
        """Return the files of a scan: newest commit first, sorted by path within a commit."""
        return in_log_order(self.snapshot.scan(predicate).arrow)

    def live(self, listed: pa.Table) -> LiveFiles:
        """Return listed files in the form that an engine reads."""
        snapshot, settings = self.snapshot, self.catalog.config.storage
        return LiveFiles(self.row.location, snapshot.metadata, listed, settings)

    def files(self, file_pruning_predicate: Pruning | None = None) -> list[str]:
        """Return the same as `file_uris`, as deltalake does."""
        return self.file_uris(file_pruning_predicate)

    def file_uris(self, file_pruning_predicate: Pruning | None = None) -> list[str]:
        """Return the address of every file: a path for a local file, a URL otherwise."""
        if file_pruning_predicate is None:
            paths = _paths_in_log_order(self.snapshot.file_paths())
        else:
            paths = self.listed(self._pruning(file_pruning_predicate))["path"].to_pylist()
        return data_addresses(self.row.location, paths)

    def get_add_file_sizes(self) -> dict[str, int]:
        """Return the size of every file by its path in the table's folder."""
        listed = self.snapshot.file_paths()
        paths, sizes = listed["path"].to_pylist(), listed["size"].to_pylist()
        return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}

    def count_records(self) -> int:
        """Return the number of rows from file statistics."""
        import pyarrow.compute as pc  # late: listing files does not need it

        return int(pc.sum(self.snapshot.file_paths()["num_records"]).as_py() or 0)

    def get_active_partitions(
        self, file_pruning_predicate: Pruning | None = None
    ) -> frozenset[frozenset[tuple[str, str | None]]]:
        """Return the distinct partitions of files, with the values as strings of the log."""
        if file_pruning_predicate is None:
            ids = self.snapshot.file_paths()["partition_id"].unique().to_pylist()
            known = self.catalog.store.partition_values(self.row.table_id)
            texts = [known.get(number, "{}") for number in ids]
        else:
            check_columns(file_pruning_predicate, self.snapshot.schema.names)
            listed = self.listed(self._pruning(file_pruning_predicate))
            texts = listed["partition"].unique().to_pylist()
        names = self._physical_partition_names()
        found = set()
        for text in texts:
            values = json.loads(text or "{}")
            found.add(frozenset((name, values.get(key)) for name, key in names.items()))
        return frozenset(found)

    def get_add_actions(self, flatten: bool) -> Table:
        """Return the files with typed statistics and partition values."""
        from deltasql.api.deltalake_compat.handle.add_actions import add_actions

        check_flags(flatten)
        listed = self.listed()
        found = add_actions(self.snapshot.metadata, listed, self.live(listed))
        while flatten and any(str(field.type).startswith("struct") for field in found.schema):
            found = found.flatten()
        return Table.from_arrow(found)

    def dataset_partitions(
        self, schema: ArrowSchemaExportable, file_pruning_predicate: Pruning | None = None
    ) -> list[tuple[str, pds.Expression | None]]:
        """Return each file with an expression that holds for its rows, for pyarrow's skipping."""
        from deltasql.api.deltalake_compat.handle.guarantees import guarantees

        listed = self.listed(self._pruning(file_pruning_predicate))
        paths = [unquote(path) for path in listed["path"].to_pylist()]
        known = guarantees(self.snapshot.metadata, listed, self.live(listed), schema)
        return list(zip(paths, known, strict=True))

    def deletion_vectors(self) -> RecordBatchReader:
        """Return a mask of the live rows for every file with a deletion vector."""
        from deltasql.api.deltalake_compat.handle.vectors import selections

        listed = self.listed()
        return RecordBatchReader.from_arrow(selections(self.live(listed), listed))

    def _pruning(self, predicate: Pruning | None) -> Pruning | None:
        """Return a predicate with the meaning that it has in `delete` and `update`.

        A predicate or value that deltalake does not accept for data skipping is refused.
        """
        snapshot = self.snapshot
        if isinstance(predicate, str):
            from deltasql.api.deltalake_compat.handle.pruning import pruning_condition

            return pruning_condition(predicate, snapshot.schema)
        check_partition_values(predicate, snapshot.schema, snapshot.partition_columns)
        return predicate

    def get_num_index_cols(self) -> int:
        """Return the number of columns with statistics; -1 means all."""
        return TableProperties(self.snapshot.metadata.configuration).num_indexed_cols

    def get_stats_columns(self) -> list[str] | None:
        """Return the columns of `delta.dataSkippingStatsColumns`; None if it is not set."""
        named = self.snapshot.metadata.configuration.get("delta.dataSkippingStatsColumns")
        return None if named is None else [part.strip() for part in named.split(",")]

    def _physical_partition_names(self) -> dict[str, str]:
        snapshot = self.snapshot
        mode = column_mapping_mode(snapshot.metadata.configuration)
        names = {}
        for name in snapshot.partition_columns:
            field = snapshot.schema.find(name)
            names[name] = name if field is None else field.physical_name(mode)
        return names


def in_log_order(listed: pa.Table) -> pa.Table:
    """Sort files in the order in which deltalake lists them from the published log."""
    if listed.num_rows < 2:
        return listed
    return listed.sort_by([("added_version", "descending"), ("path", "ascending")])


def _paths_in_log_order(listed: pa.Table) -> list[str]:
    paths: list[str]
    # Sorting with Arrow imports pyarrow.compute, which takes longer than sorting a few paths.
    if listed.num_rows > _FEW_FILES:
        paths = in_log_order(listed)["path"].to_pylist()
        return paths
    commits, paths = listed["added_version"].to_pylist(), listed["path"].to_pylist()
    newest_first = sorted(zip(commits, paths, strict=True), key=lambda file: (-file[0], file[1]))
    return [path for _, path in newest_first]
