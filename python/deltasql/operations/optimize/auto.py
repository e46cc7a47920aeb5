"""Auto compaction: OPTIMIZE of the newest small files of a table, in the background.

A file is small if it has less than half of the target size. Files are only combined with files of
about the same size (below 64 KiB, 1 MiB, 16 MiB, or larger), so that large files are not rewritten
for a few new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.model.properties import TableProperties
from deltasql.operations.optimize.compaction import plan_files, stage_bins, wanted_file_size
from deltasql.operations.optimize.optimize import clustering_rewrite
from deltasql.snapshot.files import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.operations.table_stage import TableStage
    from deltasql.store.store import Store

# The index is read only for this many file ids, so that a round takes the same time in tables with
# few and with many files.
_NEWEST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """What the properties of a table say about auto compaction.

    >>> CompactionPolicy.of({"delta.autoOptimize.autoCompact": "auto"})
    CompactionPolicy(min_files=50, target_size=104857600)
    >>> CompactionPolicy.of({}) is None
    True
    """

    min_files: int
    target_size: int

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> CompactionPolicy | None:
        """Return the policy of a table; None if auto compaction is off."""
        properties = TableProperties(configuration)
        if not properties.auto_compact:
            return None
        return cls(properties.auto_compact_min_files, wanted_file_size(configuration))


def files_to_compact(
    store: Store, table_id: int, next_file_id: int, policy: CompactionPolicy
) -> list[int]:
    """Return the ids of the files to rewrite, with one query over the newest files."""
    rows = store.query(
        "files_to_compact",
        table_id=table_id,
        first_file_id=next_file_id - _NEWEST_FILES,
        small_size=max(1, policy.target_size // 2),
        min_files=policy.min_files,
    )
    return [row[0] for row in rows]


def compact_files(
    stage: TableStage,
    file_ids: list[int],
    policy: CompactionPolicy,
    *,
    is_enough: Callable[[], bool],
) -> int:
    """Combine the files with these ids that are still live; return how many were rewritten."""
    assert stage.snapshot is not None
    files = to_arrow(stage.snapshot.scan().files_among(file_ids))
    plan = plan_files(files, policy.target_size)
    plan.is_auto = True
    stage_bins(stage, plan, rewrite=clustering_rewrite(stage), is_enough=is_enough)
    return len(plan.removed)
