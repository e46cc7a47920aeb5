"""Read a table with pyarrow datasets, or with the engine if pyarrow cannot read its files."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pfs
from deltalake.fs import DeltaStorageHandler
from pyarrow.parquet import filters_to_expression

from deltasql import deltalake_internals
from deltasql.engine.parquet.file_errors import convert_read_errors, missing_file
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import column_mapping_mode, has_void
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.api.deltalake_compat.handle.raw_table import RawTable

_ABSOLUTE_PATH = "^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"


def file_system(raw: RawTable, storage_options: dict[str, str] | None) -> pfs.FileSystem:
    """Return a file system whose root is the folder of the table."""
    place = parse_location(raw.row.location)
    if place.is_local:
        return pfs.SubTreeFileSystem(place.path, pfs.LocalFileSystem())
    options = {**raw.storage_options(), **(storage_options or {})}
    handler = DeltaStorageHandler(raw.table_uri(), options, raw.get_add_file_sizes())
    return pfs.PyFileSystem(handler)


def can_pyarrow_read(raw: RawTable) -> bool:
    """Return whether pyarrow reads exactly the table's rows from its data files."""
    features = raw.snapshot.protocol.reader_features or ()
    return (
        set(features) <= deltalake_internals.reader_features()
        and not _is_mapped(raw)
        # A file may store integers in a void column. pyarrow does not read these integers as nulls.
        and not any(has_void(field.type) for field in raw.snapshot.schema.fields)
        and not _has_files_outside(raw)
    )


def check_pyarrow_can_read(raw: RawTable) -> None:
    """Raise if a dataset would return wrong rows; deltalake itself checks the table features."""
    reasons = {
        "columnMapping": _is_mapped(raw),
        "files outside of its folder": _has_files_outside(raw),
    }
    for reason in (reason for reason, applies in reasons.items() if applies):
        raise UnsupportedFeatureError(
            f"The table has {reason}, but this is not supported using pyarrow Datasets",
            table=raw.name,
            features=(reason,),
            help="Read it with scan(), to_pyarrow_table() or to_pandas().",
        )


def filter_expression(filters: Any) -> pc.Expression | None:
    """Return filters as a pyarrow expression."""
    return None if filters is None else filters_to_expression(_with_nanoseconds(filters))


def _with_nanoseconds(filters: Any) -> Any:
    """Return filters that keep the nanoseconds of pandas Timestamps, which pyarrow truncates."""
    if isinstance(filters, list | tuple):
        return type(filters)(map(_with_nanoseconds, filters))
    if not getattr(filters, "nanosecond", 0):
        return filters
    zone = None if filters.tzinfo is None else "UTC"
    return pa.scalar(filters.as_unit("ns").value, pa.timestamp("ns", zone))


def read_table(
    raw: RawTable,
    columns: list[str] | None,
    condition: pc.Expression | None,
    pruning: str | Sequence[Any] | None,
) -> pa.Table:
    """Read rows with the engine, which supports deletion vectors and column mapping."""
    # lazy import: loads the SQL parser
    from deltasql.api.deltalake_compat.handle.scan import read_rows

    needed = columns if condition is None else None
    rows = read_rows(raw, needed, files=raw.listed(pruning), views=False)
    names = columns if columns is not None else rows.schema.names
    return pds.Scanner.from_batches(rows, columns=names, filter=condition).to_table()


def dataset_rows(
    raw: RawTable, dataset: pds.Dataset, columns: list[str] | None, condition: pc.Expression | None
) -> pa.Table:
    """Read the rows of a dataset; if a file is missing or damaged, the error names it."""
    try:
        return dataset.to_table(columns=columns, filter=condition)
    except FileNotFoundError as error:
        found = dataset.filesystem.get_file_info(dataset.files)
        gone = [each.path for each in found if each.type is pfs.FileType.NotFound]
        if not gone:
            raise
        # Raise the same class as deltalake, with our help text as a note.
        missing = missing_file(gone[0], raw.snapshot.table.location)
        named = FileNotFoundError(errno.ENOENT, missing.message, gone[0])
        named.add_note(f"Help: {missing.help}")
        raise named from error
    except (pa.ArrowInvalid, OSError):
        # The filter may be the cause, so read each file to find out whether one is damaged.
        for fragment in dataset.get_fragments():
            with convert_read_errors(fragment.path, raw.snapshot.table.location):
                for _ in fragment.to_batches(schema=dataset.schema):
                    pass
        raise


def _is_mapped(raw: RawTable) -> bool:
    return column_mapping_mode(raw.snapshot.metadata.configuration) is not None


def _has_files_outside(raw: RawTable) -> bool:
    paths = raw.snapshot.files()["path"]
    return bool(pc.any(pc.match_substring_regex(paths, _ABSOLUTE_PATH)).as_py())
