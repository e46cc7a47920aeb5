"""FSCK: files that are gone from storage leave the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.verify.file_presence import missing_files

if TYPE_CHECKING:
    from deltasql.operations.target import TableStage


def repair(target: TableStage, *, dry_run: bool = False) -> dict[str, Any]:
    """Remove the files that cannot be read any more; without one, nothing is committed."""
    files = target.files()
    gone = missing_files(target.location, files, target.config.storage)
    if gone and not dry_run:
        lost = files.filter(pc.is_in(files["path"], value_set=pa.array(gone, pa.string())))
        target.remove(lost)
        told = {"dry_run": False, "files_removed": json.dumps(gone, separators=(",", ":"))}
        set_commit_info(target, "FSCK", {}, told)
    return {"dry_run": dry_run, "files_removed": gone}
