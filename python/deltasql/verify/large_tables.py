"""Compare a table of any size with its log; very large tables by a hash of their files.

The hash is a sum over all files, so it does not depend on their order or on the size of pages, and
neither list of files has to be in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.exceptions import TxnLogProtocolError
from deltasql.mirror.log.file_tables import FILES
from deltasql.mirror.log.read import stream_state
from deltasql.mirror.publish.targets import OWN
from deltasql.verify.log_files import PublishedLog, check_commits, compare_facts
from deltasql.verify.report import Differences, VerifyReport
from deltasql.verify.sql_state import SqlState
from deltasql.verify.verify_log import missing_versions, published_version, verify_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.config import StorageSettings
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.progress import Meter
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# With more files than this, the two lists of files are not in memory at the same time.
_LARGE = 200_000
# deltalake compares value by value, which is slow for more files than this.
_MAX_FOR_DELTALAKE = 20_000
# In a checkpoint dataChange is always false; the number of rows is part of the stats.
_FIELDS = [name for name in FILES.names if name not in ("data_change", "num_records")]
_MASK = 2**64 - 1


def verify_by_size(
    store: Store,
    table: TableRow,
    storage: Storage,
    log: LogListing,
    settings: StorageSettings,
    *,
    meter: Meter | None = None,
    since: int | None = None,
) -> VerifyReport:
    """Compare a table with its log; very large tables by a fingerprint of their files."""
    high = store.query("version_bounds", table_id=table.table_id)[0][1]
    last = min(high, log.last_version)
    files = SqlState(store, table, last).totals.num_files
    if files > _LARGE:
        streamed = _verify_streamed(store, table, storage, log.up_to(last), since or 0, meter)
        if streamed is not None:
            return streamed
    found = verify_table(
        store,
        table,
        storage,
        log=log,
        storage_options=settings.plain_options(storage.location),
        with_deltalake=files <= _MAX_FOR_DELTALAKE,
        meter=meter,
        since=since,
    )
    if files > _MAX_FOR_DELTALAKE:
        found.notes.append("too many files to compare with deltalake")
    return found


def _verify_streamed(
    store: Store,
    table: TableRow,
    storage: Storage,
    log: LogListing,
    since: int,
    meter: Meter | None,
) -> VerifyReport | None:
    """Compare the commits from `since` on, and a fingerprint of the latest files.

    Returns None if versions are missing, the fingerprints differ or the state cannot be read,
    because only the full comparison finds the differences.
    """
    last, low = log.last_version, store.query("version_bounds", table_id=table.table_id)[0][0]
    if missing_versions(log, low, max(last, published_version(store, table, OWN))):
        return None
    sql = SqlState(store, table, last)
    try:
        state = stream_state(storage, last, listing=log)
        if fingerprint(state.files) != fingerprint(sql.file_pages()):
            return None
    except (TxnLogProtocolError, FileNotFoundError):
        return None  # the checkpoint is damaged, and the table was not loaded from it
    commits = range(max(low + 1 if low else 0, since), last + 1)
    compared = PublishedLog(store, table, storage, log)
    found = Differences()
    count, foreign_bytes = check_commits(compared, commits, found, meter)
    compare_facts(sql, state, found)
    return VerifyReport(
        table.full_name,
        storage.location,
        sql_version=last,
        log_version=last,
        checked_from=low,
        versions=[last],
        commits=count,
        foreign_bytes=foreign_bytes,
        notes=["too many files to compare with deltalake and checkpoint by checkpoint"],
        found=found,
    )


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
