"""Which files that a log names are gone from storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from deltasql.engine.addresses import storage_of
from deltasql.model.deletion_vector import vector_file
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.config import StorageSettings

_AT_ONCE = 16


def missing_files(location: str, files: pa.Table, settings: StorageSettings) -> list[str]:
    """Return the paths of listed files that cannot be read: they, or their deletion vector."""
    columns = (files["path"].to_pylist(), files["deletion_vector"].to_pylist())

    def is_gone(path: str, vector: str) -> bool:
        parsed = load_dv(vector)
        named = [path, None if parsed is None else vector_file(parsed)]
        places = (storage_of(location, each, settings) for each in named if each is not None)
        return not all(storage.exists(name) for storage, name in places)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deltasql-files") as pool:
        gone = list(pool.map(is_gone, *columns))
    return [path for path, lost in zip(columns[0], gone, strict=True) if lost]
