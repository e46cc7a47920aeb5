"""Which files can be revised: opened, and looked at for all that would have to be the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engine.footer_stats import indexed_leaves
from deltasql.engine.splice import Footer

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.engine.file_shape import FileShape
    from deltasql.engine.live_files import LiveFile
    from deltasql.engine.parquet_options import ParquetOptions
    from deltasql.engine.thrift import Struct

_LEAST_BYTES = 1024 * 1024  # smaller files are better put together
_LARGEST_GROUP = 512 * 1024 * 1024
_MOST_ROWS = 64 * 1024 * 1024  # of a row group
_OLD_CALENDAR = b"org.apache.spark.legacy"  # as are the keys by which Spark tells of one


@dataclass(frozen=True, slots=True)
class Revisable:
    """An open file whose columns can be copied and encoded one by one."""

    address: str
    footer: Footer
    metadata: pq.FileMetaData
    schema: pa.Schema
    leaves: dict[str, range]
    """The places of the leaves of each column among all leaves, by physical name."""


def may_be_revised(file: LiveFile) -> bool:
    """Tell whether a file is worth opening, by what the log says of it."""
    return file.address.startswith("/") and not file.vector and (file.size or 0) >= _LEAST_BYTES


def open_revisable(
    file: LiveFile,
    shape: FileShape,
    options: ParquetOptions,
    changed: Collection[str],
) -> Revisable | None:
    """Open a file; None when it is not worth it, or not stored as we would store it.

    `changed` names the columns with new values, as they are in the file.
    """
    if not may_be_revised(file):
        return None
    source = pa.OSFile(file.address)
    try:
        footer = Footer(source)
    except ValueError:
        return None
    if source.size() != file.size:
        return None
    parquet = pq.ParquetFile(source)
    found = Revisable(
        file.address,
        footer,
        parquet.metadata,
        parquet.schema_arrow.remove_metadata(),
        {name: places for name, (_, places) in footer.columns().items()},
    )
    fits = (
        footer.is_plain
        and footer.is_whole
        and len(found.leaves) == len(found.schema)
        and all(0 < group.size <= _LARGEST_GROUP for group in footer.groups)
        and all(group.rows <= _MOST_ROWS for group in footer.groups)
        and not any(key.startswith(_OLD_CALENDAR) for key in parquet.metadata.metadata or ())
        and all(chunk.codec == options.codec for g in footer.groups for chunk in g.chunks)
        and all(_has_type(found.schema, shape.stored, name) for name in changed)
        and _tells_bounds(found, shape)
        and _is_stored_alike(found)
    )
    return found if fits else None


def _has_type(schema: pa.Schema, stored: pa.Schema, name: str) -> bool:
    here = schema.field(name) if name in schema.names else None
    wanted = stored.field(name)
    return (
        here is not None
        and here.type.equals(wanted.type)
        and (here.nullable or not wanted.nullable)
    )


def _tells_bounds(found: Revisable, shape: FileShape) -> bool:
    """Tell whether the new statistics can be had from the footer."""
    for path, kind in indexed_leaves(shape):
        places = found.leaves.get(path[0])
        if kind is None or places is None or not _is_comparable(found.schema, path, kind):
            return False
        for group in found.footer.groups:
            if not all(group.chunks[place].tells_bounds for place in places):
                return False
    return True


def _is_comparable(schema: pa.Schema, path: tuple[str, ...], kind: pa.DataType) -> bool:
    """Tell whether a file does not have bytes in the place of text."""
    here = schema.field(path[0]).type
    for name in path[1:]:
        place = here.get_field_index(name) if pa.types.is_struct(here) else -1
        if place < 0:
            return False
        here = here.field(place).type
    is_text = pa.types.is_string(here) or pa.types.is_large_string(here)
    return is_text or not pa.types.is_string(kind)


def _is_stored_alike(found: Revisable) -> bool:
    """Tell whether Arrow would write the columns as they are in the file."""
    written = _as_arrow_writes(found.schema)
    return all(
        written[name][0] == elements for name, (elements, _) in found.footer.columns().items()
    )


@lru_cache(8)  # the files of a table are alike
def _as_arrow_writes(schema: pa.Schema) -> dict[str, tuple[list[Struct], range]]:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False):
        pass
    return Footer(pa.BufferReader(sink.getvalue())).columns()
