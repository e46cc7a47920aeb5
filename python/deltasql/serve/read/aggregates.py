"""The request `aggregate`: count, min and max of each partition, from the statistics of the files.

The result must equal the result of a query over the rows. So the files must be read if one of them
has a deletion vector or lacks a statistic. The bounds of integers and dates are exact. The bounds
of other types are not: strings may be truncated, timestamps and decimals rounded, floats ignore
NaN, and other writers disagree about booleans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.files.live_files import LiveFiles
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.model.typed_stats import StatsParser, primitive_type
from deltasql.serve.names import snapshot_of
from deltasql.serve.read.filters import skipping_condition
from deltasql.serve.read.scan import partition_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.schema.schema import StructField
    from deltasql.snapshot.snapshot import Snapshot

_EXACT_BOUNDS = ("byte", "short", "integer", "long", "date")
_COMBINED = (("count", "sum"), ("min", "min"), ("max", "max"))
"""How the values of several files are combined."""


def aggregated(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of each partition, and the count, min and max of columns.

    The response says `is_exact: false`, and nothing else, if the files must be read. The filters
    only skip files, so the response may contain a partition without a matching row.
    """
    if body.get("read_in") is not None:  # a scan adds what is read to the transaction's read set
        return {"is_exact": False}
    snapshot = snapshot_of(catalog, body)
    scan = snapshot.scan(skipping_condition(body.get("filters", ())))
    listed = scan.arrow
    live = LiveFiles(snapshot.table.location, snapshot.metadata, listed, catalog.config.storage)
    fields = [snapshot.schema.find(str(name)) for name in body.get("columns", ())]
    known = [field for field in fields if field is not None and field.type in _EXACT_BOUNDS]
    if live.have_deletions or len(known) < len(fields):
        return {"is_exact": False}
    found = _statistics(snapshot, listed, known)
    if found is None:
        return {"is_exact": False}
    grouped = _by_partition(found.append_column("partition", live.partitions), known)
    columns = {
        field.name: {
            name: _numbers(grouped[f"{field.name}.{name}_{how}"]) for name, how in _COMBINED
        }
        for field in known
    }
    return {
        "is_exact": True,
        "partitions": partition_values(live, grouped["partition"].to_pylist()),
        "rows": _numbers(grouped["rows_sum"]),
        "columns": columns,
    }


def _statistics(
    snapshot: Snapshot, listed: pa.Table, fields: Sequence[StructField]
) -> pa.Table | None:
    """Return the count, min and max of columns in each file; None if one is not known exactly."""
    mode = column_mapping_mode(snapshot.metadata.configuration)
    names = [(field.name, field.physical_name(mode)) for field in fields]
    bounds = pa.struct(
        [(key, primitive_type(f.type)) for f, (_, key) in zip(fields, names, strict=True)]
    )
    nulls = pa.struct([(key, pa.int64()) for _, key in names])
    wanted = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    if names:
        wanted += [("minValues", bounds), ("maxValues", bounds), ("nullCount", nulls)]
    stats = StatsParser(pa.struct(wanted)).parse(listed["stats"].cast(pa.string()).combine_chunks())
    rows = stats.field("numRecords")
    is_loose = pc.equal(pc.fill_null(stats.field("tightBounds"), True), False)
    if rows.null_count or pc.any(is_loose).as_py():
        return None
    found = {"rows": rows}
    for name, key in names:
        low, high, empty = (
            pc.struct_field(stats, [part, key]) for part in ("minValues", "maxValues", "nullCount")
        )
        count = pc.subtract(rows, empty)
        has_bounds = pc.and_(pc.is_valid(low), pc.is_valid(high))
        if empty.null_count or not pc.all(pc.or_(has_bounds, pc.equal(count, 0))).as_py():
            return None
        found |= {f"{name}.count": count, f"{name}.min": low, f"{name}.max": high}
    return pa.table(found)


def _by_partition(statistics: pa.Table, fields: Sequence[StructField]) -> pa.Table:
    wanted = [("rows", "sum")]
    for field in fields:
        wanted += [(f"{field.name}.{each}", how) for each, how in _COMBINED]
    return statistics.group_by("partition").aggregate(wanted)


def _numbers(column: pa.ChunkedArray) -> list[int | None]:
    """Return numbers; dates are days since 1970."""
    plain = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    found: list[int | None] = plain.to_pylist()
    return found
