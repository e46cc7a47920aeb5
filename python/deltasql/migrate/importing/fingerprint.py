"""Compare two large sets of files by a hash, without holding either of them in memory.

The hash is a sum over all files, so that neither their order nor the size of pages matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import FileList
from deltasql.mirror.log.file_tables import FILES, canonical_files
from deltasql.snapshot.files import from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.store import Store

# In a checkpoint dataChange is always false; the number of rows is part of the stats.
_FIELDS = [name for name in FILES.names if name not in ("data_change", "num_records")]
_PAGE = 50_000
_MASK = 2**64 - 1


def fingerprint(pages: Iterable[pa.Table]) -> tuple[int, int]:
    """Return the number of files and the sum of their hashes.

    >>> files = pa.Table.from_pylist([{"path": "a", "size": 1}, {"path": "b", "size": 2}], FILES)
    >>> reversed_files = files.take([1, 0])
    >>> pages = [reversed_files.slice(0, 1), reversed_files.slice(1)]
    >>> fingerprint([files]) == fingerprint(pages)
    True
    >>> fingerprint([files]) == fingerprint([files.slice(1), files.slice(1)])
    False
    """
    count = total = 0
    for page in pages:
        columns = (page[name].cast("string") for name in _FIELDS)
        lines = pc.binary_join_element_wise(
            *columns, "\x00", null_handling="replace", null_replacement="\x01"
        )
        count += len(lines)
        total = (total + sum(map(hash, lines.to_pylist()))) & _MASK
    return count, total


def sql_pages(store: Store, snapshot: Snapshot) -> Iterator[pa.Table]:
    """Yield the live files of a snapshot in pages."""
    table_id = snapshot.table.table_id
    partitions = store.partition_values(table_id)
    end = snapshot.next_file_id
    for first in range(1, end, _PAGE):
        page = store.arrow(
            "files_all",
            table_id=table_id,
            first_file_id=first,
            next_file_id=min(first + _PAGE, end),
            version=snapshot.version,
        )
        named = FileList.from_arrow(from_arrow(page, "files_all")).with_partitions(partitions)
        yield canonical_files(pa.RecordBatchReader.from_stream(named).read_all(), FILES)
