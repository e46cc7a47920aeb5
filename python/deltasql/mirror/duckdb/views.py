"""The SQL of a DuckDB view over the live files of one table, in a session of any time zone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.engine.duckdb.scan import (
    NO_PATHS,
    ColumnPath,
    TableShape,
    as_pattern,
    empty_query,
    files_query,
    literal,
)
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import has_nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from deltasql.model.schema.schema import StructType


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are read alike."""

    addresses: Sequence[str]
    naive: Set[ColumnPath] = NO_PATHS
    """Timestamps that these files keep without a zone, by physical path."""
    has_deletions: bool = False
    schema: StructType | None = None
    """The schema to read these files by, where it is not that of the table."""


def view_query(shape: TableShape, groups: Sequence[FileGroup]) -> str:
    """Return the SELECT over all the files."""
    refused = [column.name for column in shape.schema.fields if has_nanoseconds(column.type)]
    if refused:
        raise UnsupportedFeatureError(
            f"column {refused[0]!r}: a view of DuckDB would cut nanoseconds to microseconds",
            features=("timestampNanos",),
            help="Query this table with catalog.query(), or leave it out by tables=[…].",
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
