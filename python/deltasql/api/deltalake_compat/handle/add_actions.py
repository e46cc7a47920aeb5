"""Live files in deltalake's format: statistics and partition values in typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.model.schema.schema import StructType, indexed_columns
from deltasql.model.typed_stats import StatsParser, nested_struct, primitive_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.actions import Metadata

_AT_A_TIME = 16_384
_IN_LOG = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}


def add_actions(metadata: Metadata, listed: pa.Table, live: LiveFiles) -> pa.Table:
    """Return listed files with deltalake's columns, in its types and order."""
    columns = {
        "path": listed["path"],
        "size_bytes": listed["size"],
        "modification_time": listed["modification_time"],
        "num_records": listed["num_records"],
    }
    required = {"path", "size_bytes", "modification_time"}
    for name, values in statistics(metadata, listed).items():
        columns[name] = values
    partitions = live.listed_values()
    if partitions:
        columns["partition"] = pa.StructArray.from_arrays(
            [values for _, values in partitions], names=[field.name for field, _ in partitions]
        )
    fields = [pa.field(name, each.type, name not in required) for name, each in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def statistics(metadata: Metadata, listed: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return `null_count`, `min` and `max` of files, as structs with physical column names."""
    schema = StructType.from_json(metadata.schema_string)
    leaves = indexed_columns(schema, metadata.partition_columns, metadata.configuration)
    counts = {leaf.physical_path: pa.int64() for leaf in leaves}
    bounds = {
        leaf.physical_path: kind
        for leaf in leaves
        if leaf.type != "binary" and (kind := primitive_type(leaf.type)) is not None
    }
    types = {"null_count": counts, "min": bounds, "max": bounds}
    wanted = {name: nested_struct(each) for name, each in types.items() if each}
    if not wanted:
        return {}
    parser = StatsParser(pa.struct([(_IN_LOG[name], each) for name, each in wanted.items()]))
    parsed = [parser.parse(texts) for texts in _texts(listed["stats"])]
    found = pa.chunked_array(parsed, parser.type)
    return {name: pc.struct_field(found, _IN_LOG[name]) for name in wanted}


def _texts(stats: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the statistics in batches: parsed statistics need several times the memory."""
    for first in range(0, len(stats), _AT_A_TIME):
        texts = stats.slice(first, _AT_A_TIME).combine_chunks()
        # A file without statistics has an empty string here.
        yield pc.if_else(pc.equal(texts, ""), None, texts)
