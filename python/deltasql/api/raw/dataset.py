"""Rows by pyarrow: the files of a table as a dataset, and what to do where that is not enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pfs
from deltalake.fs import DeltaStorageHandler
from deltalake.table import SUPPORTED_READER_FEATURES

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema import column_mapping_mode
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.api.raw.table import RawTable

_ELSEWHERE = "^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"


def file_system(raw: RawTable, storage_options: dict[str, str] | None) -> pfs.FileSystem:
    """Return a file system whose root is the folder of the table."""
    place = parse_location(raw.row.location)
    if place.is_local:
        return pfs.SubTreeFileSystem(place.path, pfs.LocalFileSystem())
    options = {**raw.storage_options(), **(storage_options or {})}
    handler = DeltaStorageHandler(raw.table_uri(), options, raw.get_add_file_sizes())
    return pfs.PyFileSystem(handler)


def is_plain(raw: RawTable) -> bool:
    """Tell whether pyarrow finds all rows, and no others, in the files as they are."""
    features = raw.snapshot.protocol.reader_features or ()
    return (
        set(features) <= SUPPORTED_READER_FEATURES
        and not _is_mapped(raw)
        and not _has_files_elsewhere(raw)
    )


def check_plain(raw: RawTable) -> None:
    """Refuse a table of which a dataset would give wrong rows; deltalake tells of the others."""
    reasons = {
        "columnMapping": _is_mapped(raw),
        "files outside of its folder": _has_files_elsewhere(raw),
    }
    for reason in (reason for reason, is_so in reasons.items() if is_so):
        raise UnsupportedFeatureError(
            f"The table has {reason}, but this is not supported using pyarrow Datasets",
            table=raw.name,
            features=(reason,),
            help="Read it with scan(), to_pyarrow_table() or to_pandas().",
        )


def read_table(
    raw: RawTable,
    columns: list[str] | None,
    condition: pc.Expression | None,
    pruning: str | Sequence[Any] | None,
) -> pa.Table:
    """Read rows with the engine, which knows deletion vectors and column mapping."""
    needed = columns if condition is None else None
    rows = raw.read(needed, files=raw.listed(pruning), views=False)
    names = columns if columns is not None else rows.schema.names
    return pds.Scanner.from_batches(rows, columns=names, filter=condition).to_table()


def _is_mapped(raw: RawTable) -> bool:
    return column_mapping_mode(raw.snapshot.metadata.configuration) is not None


def _has_files_elsewhere(raw: RawTable) -> bool:
    paths = raw.snapshot.files()["path"]
    return bool(pc.any(pc.match_substring_regex(paths, _ELSEWHERE)).as_py())
