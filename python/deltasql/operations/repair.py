"""FSCK REPAIR TABLE: remove files that are missing in storage from the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.files.file_sizes import missing_files

if TYPE_CHECKING:
    from deltasql.operations.table_stage import TableStage


def repair(stage: TableStage, *, dry_run: bool = False) -> dict[str, Any]:
    """Remove files from the table that are missing, or whose deletion vector is missing.

    If no file is missing, nothing is staged.
    """
    files = stage.files()
    missing = missing_files(stage.location, files, stage.config.storage)
    if missing and not dry_run:
        stage.remove(
            files.filter(pc.is_in(files["path"], value_set=pa.array(missing, pa.string())))
        )
        metrics = {"dry_run": False, "files_removed": json.dumps(missing, separators=(",", ":"))}
        stage.set_commit_info("FSCK", {}, metrics)
    return {"dry_run": dry_run, "files_removed": missing}
