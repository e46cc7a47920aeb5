"""Check a published log quickly for damage, such as after a power loss.

One listing gives the sizes of all files. Only the newest commits are compared with the database,
and only the ends of the newest checkpoints are checked. `verify` compares everything.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError
from deltasql.exceptions.redaction import redact
from deltasql.mirror.log.last_checkpoint import hint_fault
from deltasql.mirror.log.listing import LAST_CHECKPOINT, find_log
from deltasql.mirror.publish.status import LogFault
from deltasql.verify.log_files import PublishedLog, check_commits
from deltasql.verify.report import Differences
from deltasql.verify.verify_log import missing_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.mirror.log.listing import Checkpoint
    from deltasql.mirror.publish.targets import PublishTarget
    from deltasql.storage import Storage
    from deltasql.store.store import Store

NEWEST_COMMITS = 100
_NEWEST_CHECKPOINTS = 3
_MAGIC = b"PAR1"  # the last bytes of every Parquet file


def log_faults(store: Store, target: PublishTarget, storage: Storage) -> list[LogFault]:
    """Return the problems of a published log; nothing is changed."""
    if target.published_version < 0 or (target.is_own and target.table.is_following):
        return []
    try:
        listing = find_log(storage)
        if listing is None:
            return [LogFault("the log is missing")]
        log = PublishedLog(store, target.table, storage, listing)
        return list(_faults(log, target.published_version))
    except (OSError, TxnLogError) as error:
        return [LogFault(f"the log cannot be read: {redact(str(error).partition(chr(10))[0])}")]


def _faults(log: PublishedLog, published: int) -> Iterator[LogFault]:
    listing = log.listing
    low, high = log.store.query("version_bounds", table_id=log.table.table_id)[0]
    # Only check versions published before the listing, because later ones may be in progress.
    last = min(high, published)
    for version in missing_versions(listing, low, last):
        yield LogFault(f"version {version} is missing")
    known = range(low + bool(low), last + 1)  # a first version above 0 has no commit
    newest = known[-NEWEST_COMMITS:]
    for version, file in listing.commits.items():
        if not file.size and version > last:
            yield LogFault(f"version {version} is empty")
        elif version > high:
            text = f"version {version} is not in the database"
            yield LogFault(text, is_damage=False, is_after_head=True)
        elif not file.size and version in known and version not in newest:
            # The file may be right: the commit may have been empty when it was imported.
            yield from _commit_faults(log, range(version, version + 1))
    yield from _commit_faults(log, newest)
    for checkpoint in listing.checkpoints[-_NEWEST_CHECKPOINTS:]:
        if _is_truncated(log.storage, checkpoint):
            yield LogFault(f"the checkpoint of version {checkpoint.version} is truncated")
    fault = hint_fault(log.storage, listing)
    if fault is not None:
        names_file = fault.startswith(LAST_CHECKPOINT)
        yield LogFault(fault if names_file else f"{LAST_CHECKPOINT}: {fault}")


def _commit_faults(log: PublishedLog, versions: range) -> Iterator[LogFault]:
    """Yield the differences of commit files from the database."""
    found = Differences()
    check_commits(log, versions, found)
    for each in found.kept:
        if each.kind == "damaged":
            yield LogFault(f"version {each.version} is {each.log}")
        elif each.kind == "unreadable":
            yield LogFault(f"version {each.version} is damaged: {each.log}")
        elif each.kind == "diverged":
            yield LogFault(
                f"version {each.version} differs from the commit in the database", is_damage=False
            )


def _is_truncated(storage: Storage, checkpoint: Checkpoint) -> bool:
    """Return whether a file of a checkpoint lacks its end."""
    for file in checkpoint.files:
        if file.size < 2 * len(_MAGIC):
            return True
        if file.name.endswith(".parquet"):
            with storage.open_input(file.name) as opened:
                opened.seek(-len(_MAGIC), io.SEEK_END)
                if opened.read() != _MAGIC:
                    return True
    return False
