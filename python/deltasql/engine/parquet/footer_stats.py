"""Compute Delta statistics from the footer of a file that another engine wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engine.parquet.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.parquet.file_shape import FileShape, Indexed
    from deltasql.storage import Storage

Path = tuple[str, ...]
_NANOSECONDS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}


@dataclass(frozen=True, slots=True)
class FooterStats:
    """The number of rows of a file, and its Delta statistics as JSON, both from its footer."""

    rows: int
    stats: str


def read_footer(storage: Storage, name: str, shape: FileShape, tight: bool) -> FooterStats:
    """Read the statistics of one file from its footer; with `tight`, add `tightBounds` to them."""
    with storage.open_input(name) as file:
        footer = pq.read_metadata(file)
    return FooterStats(footer.num_rows, footer_statistics(footer, shape).to_json(tight=tight))


def footer_statistics(footer: pq.FileMetaData, shape: FileShape) -> Statistics:
    """Combine the statistics of the row groups; omit a value that a row group lacks.

    >>> import io
    >>> from deltasql.engine.parquet.file_shape import FileShape
    >>> sink, rows = io.BytesIO(), pa.table({"id": [1, None, 3]})
    >>> pq.write_table(rows, sink, row_group_size=2)
    >>> shape = FileShape(rows.schema, rows.schema, (), (), {"id": None}, ())
    >>> footer_statistics(pq.read_metadata(sink), shape).to_json()
    '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3},"nullCount":{"id":1}}'
    """
    found = Statistics(shape.indexed)
    found.add_rows(footer.num_rows)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    numbers = _column_numbers(footer)
    for path, kind in _leaves(shape.indexed, shape.stored):
        if kind is None:
            continue
        number = numbers.get(".".join(path))
        parts = [] if number is None else [group.column(number).statistics for group in groups]
        if parts and all(part is not None and part.has_null_count for part in parts):
            # A row group of a column with only nulls has no bounds, and none are needed.
            bounded = [part for part in parts if part.has_min_max]
            known = all(part.has_min_max or not part.num_values for part in parts)
            bounds = _bounds(bounded, kind) if known and bounded else None
            found.add_column(path, kind, sum(part.null_count for part in parts), bounds)
    return found


def _column_numbers(footer: pq.FileMetaData) -> dict[str, int]:
    """Return column numbers by dotted path; paths that are not unique are omitted."""
    found: dict[str, int] = {}
    shared = set()
    for number in range(footer.num_columns):
        path = footer.schema.column(number).path
        if path in found:
            shared.add(path)
        found[path] = number
    return {path: number for path, number in found.items() if path not in shared}


def _leaves(
    indexed: Indexed, members: Any, path: Path = ()
) -> Iterator[tuple[Path, pa.DataType | None]]:
    """Yield the path and the type of each column with statistics.

    For lists and maps, the type is None, because they have no bounds.
    """
    kinds = {member.name: member.type for member in members}
    for name, below in indexed.items():
        if below is not None:
            yield from _leaves(below, kinds[name], (*path, name))
        else:
            yield (*path, name), None if pa.types.is_nested(kinds[name]) else kinds[name]


def _bounds(parts: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    if pa.types.is_timestamp(kind):
        return _timestamp_bounds(parts, 1 if kind.unit == "ns" else 1_000)
    if pa.types.is_temporal(kind):  # use numbers: Python has no dates after 9999
        return min(part.min_raw for part in parts), max(part.max_raw for part in parts)
    low = min(part.min for part in parts)
    # The maximum of floats is unknown: footers ignore NaN, which sorts above all numbers.
    has_maximum = not pa.types.is_floating(kind)
    return low, max(part.max for part in parts) if has_maximum else None


def _timestamp_bounds(parts: list[Any], wanted: int) -> tuple[int, int] | None:
    """Return bounds in units of `wanted` nanoseconds; None if the file's unit is unknown."""
    unit = _NANOSECONDS.get(json.loads(parts[0].logical_type.to_json()).get("timeUnit", ""))
    if unit is None:
        return None
    low = min(part.min_raw for part in parts) * unit
    high = max(part.max_raw for part in parts) * unit
    return low // wanted, -(-high // wanted)
