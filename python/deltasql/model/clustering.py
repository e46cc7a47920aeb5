"""The clustering columns of a table, which are stored in a metadata domain.

The domain contains physical column names, so that it stays valid when a column is renamed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.actions import DomainMetadata
from deltasql.model.schema.schema import (
    StructType,
    column_mapping_mode,
    leaf_columns,
    nearest,
    skipping_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import LeafColumn

FEATURE = "clustering"
DOMAIN = "delta.clustering"
_MOST_COLUMNS = 4

ColumnPath = tuple[str, ...]


def clustered_by(domain: DomainMetadata | None) -> list[ColumnPath]:
    """Return the physical paths of the clustering columns; empty if `domain` is None or removed.

    >>> clustered_by(DomainMetadata(DOMAIN, '{"clusteringColumns":[["day"],["place","city"]]}'))
    [('day',), ('place', 'city')]
    """
    if domain is None or domain.removed:
        return []
    return [tuple(path) for path in json.loads(domain.configuration)["clusteringColumns"]]


def clustering_domain(paths: Sequence[ColumnPath]) -> DomainMetadata:
    """Return the action that sets the clustering columns; for an empty list, it removes the domain.

    >>> clustering_domain([("day",)]).configuration
    '{"clusteringColumns":[["day"]],"domainName":"delta.clustering"}'
    """
    held = {"clusteringColumns": [list(path) for path in paths], "domainName": DOMAIN}
    text = json.dumps(held, separators=(",", ":"), ensure_ascii=False)
    return DomainMetadata(DOMAIN, text, removed=not paths)


def logical_paths(physical: Sequence[ColumnPath], metadata: Metadata) -> list[ColumnPath]:
    """Convert physical column paths to logical paths."""
    known = {leaf.physical_path: leaf.path for leaf in _leaves(metadata)}
    return [known[path] for path in physical]


def column_names(physical: Sequence[ColumnPath], metadata: Metadata) -> list[str]:
    """Convert physical column paths to logical names, with dots between the names of a path."""
    return [".".join(path) for path in logical_paths(physical, metadata)]


def physical_paths(columns: Sequence[str], metadata: Metadata) -> list[ColumnPath]:
    """Return the physical paths of clustering columns, which are given by name or dotted path.

    Raise TxnLogSchemaError if the table cannot be clustered by these columns.
    """
    known = {leaf.path: leaf.physical_path for leaf in _leaves(metadata)}
    found = []
    for name in columns:
        path = next((p for p in ((name,), tuple(name.split("."))) if p in known), None)
        if path is None:
            shown = [".".join(each) for each in known]
            raise TxnLogSchemaError(
                f"the table cannot be clustered by {name!r}: it has no such column",
                column=name,
                help=f"{nearest(name, shown)}The table has: {', '.join(shown)}.",
            )
        found.append(known[path])
    if len(found) > _MOST_COLUMNS or len(set(found)) < len(found):
        raise TxnLogSchemaError(
            f"a table can be clustered by 1 to {_MOST_COLUMNS} different columns, got: "
            f"{', '.join(columns)}",
            help="Name the columns that queries filter by most.",
        )
    check_clustered(found, metadata)
    return found


def check_clustered(physical: Sequence[ColumnPath], metadata: Metadata) -> None:
    """Raise TxnLogSchemaError for a partitioned table or a clustering column without statistics."""
    if not physical:
        return
    if metadata.partition_columns:
        raise TxnLogSchemaError(
            "a table cannot be both partitioned and clustered",
            help="Leave out the partition columns: clustering also lets queries skip files.",
        )
    schema = StructType.from_json(metadata.schema_string)
    skipping = {path for path, _ in skipping_columns(schema, (), metadata.configuration)}
    for path in physical:
        if path not in skipping:
            names = {leaf.physical_path: leaf.path for leaf in _leaves(metadata)}
            shown = ".".join(names.get(path, path))
            raise TxnLogSchemaError(
                f"the clustering column {shown} would be missing or would have no statistics",
                column=shown,
                help="The column must have a type with an order, and be one of the first 32 "
                "columns or listed in delta.dataSkippingStatsColumns.",
            )


def _leaves(metadata: Metadata) -> list[LeafColumn]:
    schema = StructType.from_json(metadata.schema_string)
    return list(leaf_columns(schema, column_mapping_mode(metadata.configuration)))
