"""The log files of a commit, made while the database ratifies it.

They are whole but for their names, which they get when it is certain that the commit is what was
foreseen. What became something else leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.mirror.checksum import Totals, checksum_file, foreseen_totals
from deltasql.mirror.log_files import commit_file

if TYPE_CHECKING:
    from deltasql.mirror.log_files import CommitFile
    from deltasql.storage import Storage
    from deltasql.storage.base import StagedFile
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The files of one version in the table's own log; what is None is made as always."""

    file: CommitFile
    commit: StagedFile | None
    totals: Totals | None
    checksum: StagedFile | None


def foresee(store: Store, table: TableRow, storage: Storage, file: CommitFile) -> Foreseen:
    """Stage the log files of a commit; SQL is not asked."""
    commit = storage.stage(commit_file(file.version), file.data)
    totals = foreseen_totals(store, table, storage.location, file)
    checksum = None
    if commit is not None and totals is not None:
        checksum = storage.stage(checksum_file(file.version), totals.to_json())
    return Foreseen(file, commit, totals, checksum)
