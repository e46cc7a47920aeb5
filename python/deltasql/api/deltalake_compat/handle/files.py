"""The live files of a version, in the formats of deltalake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from arro3.core import RecordBatchReader, Table

from deltasql import deltalake_internals
from deltasql.api.arguments import check_flags
from deltasql.api.deltalake_compat.handle.open_table import in_log_order
from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.storage.location import address_url, data_addresses

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.dataset as pds
    from arro3.core.types import ArrowSchemaExportable
    from sqlglot import exp

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable
    from deltasql.snapshot.snapshot import Snapshot

    Pruning = str | Sequence[Any] | exp.Expr

_FEW_FILES = 10_000
_DELETION_VECTORS = pa.schema(
    [
        pa.field("filepath", pa.large_string(), nullable=False),
        pa.field(
            "selection_vector",
            pa.list_(pa.field("item", pa.bool_(), nullable=False)),
            nullable=False,
        ),
    ]
)


def file_uris(table: OpenTable, file_pruning_predicate: Pruning | None = None) -> list[str]:
    """Return the path of every file if it is local, otherwise its URL."""
    if file_pruning_predicate is None:
        paths = _paths_in_log_order(table.snapshot.file_paths())
    else:
        paths = _listed(table, file_pruning_predicate)["path"].to_pylist()
    return data_addresses(table.row.location, paths)


def get_add_file_sizes(table: OpenTable) -> dict[str, int]:
    """Return the size of every file by its path in the table's folder."""
    listed = table.snapshot.file_paths()
    paths, sizes = listed["path"].to_pylist(), listed["size"].to_pylist()
    return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}


def get_active_partitions(
    table: OpenTable, file_pruning_predicate: Pruning | None = None
) -> frozenset[frozenset[tuple[str, str | None]]]:
    """Return the distinct partitions of the files, with the values as strings, as in the log."""
    if file_pruning_predicate is None:
        ids = table.snapshot.file_paths()["partition_id"].unique().to_pylist()
        known = table.catalog.store.partition_values(table.row.table_id)
        texts = [known.get(number, "{}") for number in ids]
    else:
        from deltasql.api.deltalake_compat.handle.pruning import check_columns

        check_columns(file_pruning_predicate, table.snapshot.schema.names)
        texts = _listed(table, file_pruning_predicate)["partition"].unique().to_pylist()
    names = _physical_partition_names(table.snapshot)
    found = set()
    for text in texts:
        values = json.loads(text or "{}")
        found.add(frozenset((name, values.get(key)) for name, key in names.items()))
    return frozenset(found)


def get_add_actions(table: OpenTable, flatten: bool) -> Any:
    """Return the files with typed statistics and partition values."""
    from deltasql.api.deltalake_compat.handle.file_statistics import add_actions

    check_flags(flatten)
    listed = table.listed()
    found = add_actions(table.snapshot.metadata, listed, table.live(listed))
    while flatten and any(str(field.type).startswith("struct") for field in found.schema):
        found = found.flatten()
    return deltalake_internals.add_actions_result(Table.from_arrow(found))


def dataset_partitions(
    table: OpenTable,
    schema: ArrowSchemaExportable,
    file_pruning_predicate: Pruning | None = None,
) -> list[tuple[str, pds.Expression | None]]:
    """Return every file with an expression that is true for all its rows, or None.

    pyarrow skips the files whose expression contradicts a filter.
    """
    from deltasql.api.deltalake_compat.handle.file_statistics import guarantees

    listed = _listed(table, file_pruning_predicate)
    paths = [unquote(path) for path in listed["path"].to_pylist()]
    known = guarantees(table.snapshot.metadata, listed, table.live(listed), schema)
    return list(zip(paths, known, strict=True))


def deletion_vectors(table: OpenTable) -> RecordBatchReader:
    """Return the URL and a mask (True for a live row) of every file with a deletion vector."""
    listed = table.listed()
    live = table.live(listed)
    paths, masks = [], []
    for file, records in zip(live.files, listed["num_records"].to_pylist(), strict=True):
        if not file.vector:
            continue
        deleted = live.deleted([file])["row_number"].to_pylist()
        # Without statistics, the number of rows is unknown: the mask ends at the last deleted row,
        # and later rows are live.
        mask = [True] * max(records or 0, max(deleted, default=-1) + 1)
        for number in deleted:
            mask[number] = False
        paths.append(address_url(file.address))
        masks.append(mask)
    found = pa.table([paths, masks], schema=_DELETION_VECTORS)
    return RecordBatchReader.from_arrow(found.to_reader())


def get_num_index_cols(table: OpenTable) -> int:
    """Return the number of columns that have statistics; -1 means all columns."""
    return TableProperties(table.snapshot.metadata.configuration).num_indexed_cols


def get_stats_columns(table: OpenTable) -> list[str] | None:
    """Return the columns of `delta.dataSkippingStatsColumns`; None if it is not set."""
    named = table.snapshot.metadata.configuration.get("delta.dataSkippingStatsColumns")
    return None if named is None else [part.strip() for part in named.split(",")]


def _listed(table: OpenTable, predicate: Pruning | None) -> pa.Table:
    if predicate is None:
        return table.listed()
    # lazy import: loads the SQL parser
    from deltasql.api.deltalake_compat.handle.pruning import checked_pruning

    return table.listed(checked_pruning(predicate, table.snapshot))


def _physical_partition_names(snapshot: Snapshot) -> dict[str, str]:
    mode = column_mapping_mode(snapshot.metadata.configuration)
    names = {}
    for name in snapshot.partition_columns:
        field = snapshot.schema.find(name)
        names[name] = name if field is None else field.physical_name(mode)
    return names


def _paths_in_log_order(listed: pa.Table) -> list[str]:
    paths: list[str]
    # Importing pyarrow.compute takes longer than sorting a few paths in Python.
    if listed.num_rows > _FEW_FILES:
        paths = in_log_order(listed)["path"].to_pylist()
        return paths
    commits, paths = listed["added_version"].to_pylist(), listed["path"].to_pylist()
    newest_first = sorted(zip(commits, paths, strict=True), key=lambda file: (-file[0], file[1]))
    return [path for _, path in newest_first]
