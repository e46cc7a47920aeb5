"""CLONE: a new table with the rows, schema and properties of a version of another table.

A deep clone copies the data files. A shallow clone refers to the files of its source, and cannot be
read after they are deleted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.files.file_sizes import missing_files
from deltasql.exceptions import MissingDataFilesError
from deltasql.model.clock import now_ms
from deltasql.model.clustering import DOMAIN
from deltasql.model.counts import many, size_text
from deltasql.model.progress import Meter
from deltasql.model.properties import NAME_IN_CATALOG
from deltasql.model.protocol import FEATURES, FENCE, with_features, writer_features
from deltasql.model.report import Report
from deltasql.operations.clone.copy_files import DataCopier
from deltasql.operations.clone.paths import ClonedData, ReferencedData
from deltasql.operations.table_stage import add_file

if TYPE_CHECKING:
    from deltasql.model.actions import AddFile, Protocol
    from deltasql.model.progress import OnProgress
    from deltasql.operations.clone.paths import Relocation
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot

# The names of all properties of in-commit timestamps contain this text. These properties describe
# the log of the source, so a clone does not get them.
_IN_COMMIT_TIMESTAMPS = "nCommitTimestamp"
_FEATURES_OF_THE_LOG = frozenset({"inCommitTimestamp", "catalogManaged", FENCE})
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneReport(Report):
    """The result of a clone.

    `files` and `bytes` describe the source. A shallow clone copies nothing. `removed_files` counts
    the files of a table that the clone replaced. `version` is None until the commit.
    """

    source: str
    source_version: int
    target: str
    location: str
    is_shallow: bool
    version: int | None = None
    files: int = 0
    bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    seconds: float = 0.0

    def metrics(self) -> dict[str, int]:
        """Return the metrics of the commit, with the names that delta-spark gives them."""
        return {
            "sourceTableSize": self.bytes,
            "sourceNumOfFiles": self.files,
            "numRemovedFiles": self.removed_files,
            "removedFilesSize": self.removed_bytes,
            "numCopiedFiles": self.copied_files,
            "copiedFilesSize": self.copied_bytes,
        }

    def summary(self) -> str:
        """Return the report as text."""
        what = "shallow clone" if self.is_shallow else "deep clone"
        lines = [f"{self.target}: {what} of {self.source} at version {self.source_version}"]
        copied = "refers to" if self.is_shallow else "copied"
        lines.append(f"{copied} {many(self.files, 'file')} of {size_text(self.bytes)}")
        if self.removed_files:
            lines.append(f"replaced {many(self.removed_files, 'file')}")
        lines.append(f"the table is at {self.location}")
        return "\n  ".join(lines)


def cloned_properties(source: Snapshot) -> dict[str, str]:
    """Return the properties for a clone: those of the source, except for its name and its log."""
    return {
        key: value
        for key, value in source.metadata.configuration.items()
        if _IN_COMMIT_TIMESTAMPS not in key and key != NAME_IN_CATALOG
    }


def stage_clone(
    stage: TableStage,
    source: Snapshot,
    *,
    shallow: bool,
    may_lack_files: bool,
    on_progress: OnProgress | None = None,
) -> CloneReport:
    """Stage the files of a snapshot for a table that has its schema and no rows.

    With `may_lack_files`, a shallow clone checks that the files of the source still exist.
    """
    start = time.monotonic()
    files = source.scan().arrow
    removed = [each.size or 0 for each in stage.staged.removes]
    report = CloneReport(
        source=source.table.full_name,
        source_version=source.version,
        target=stage.name,
        location=stage.location,
        is_shallow=shallow,
        files=files.num_rows,
        bytes=pc.sum(files["size"]).as_py() or 0,
        removed_files=len(removed),
        removed_bytes=sum(removed),
    )
    _stage_protocol(stage, source)
    if shallow:
        if may_lack_files:
            settings = stage.config.storage
            _reject_missing(source, missing_files(source.table.location, files, settings))
        stage.add(_relocated(files, ReferencedData(source.table.location)))
    else:
        relocation = ClonedData(source.table.location)
        copied = _copy(stage, source, files, relocation, Meter(stage.name, on_progress))
        report = replace(report, copied_files=copied.files, copied_bytes=copied.bytes)
        stage.add(_relocated(files, relocation, modification_time=now_ms()))
    parameters = {
        "source": source.table.location,
        "sourceVersion": str(source.version),
        "isShallow": str(shallow).lower(),
    }
    stage.set_commit_info("CLONE", parameters, report.metrics())
    return replace(report, seconds=time.monotonic() - start)


def _copy(
    stage: TableStage, source: Snapshot, files: pa.Table, relocation: ClonedData, meter: Meter
) -> DataCopier:
    """Copy the files of the source; intents are recorded before the files are written."""
    with DataCopier(relocation, stage.storage, stage.config.storage) as copier:

        def report() -> None:
            done = copier.files
            meter.report(
                "copying", "files", done, files.num_rows, files=done, size_bytes=copier.bytes
            )

        copier.before_batch = stage.plan().intend
        copier.on_batch = report
        copier.copy_listed(files)
        _reject_missing(source, sorted(copier.missing))
        copier.flush_folders()
    return copier


def _reject_missing(source: Snapshot, missing: list[str]) -> None:
    if not missing:
        return
    raise MissingDataFilesError(
        f"version {source.version} of {source.table.full_name} cannot be cloned: "
        f"{many(len(missing), 'data file')} cannot be found, such as "
        f"{', '.join(missing[:_MAX_NAMED])}",
        location=source.table.location,
        count=len(missing),
        files=tuple(missing),
        help="A vacuum may have deleted them: clone a later version.",
    )


def _relocated(files: pa.Table, relocation: Relocation, **changes: Any) -> list[AddFile]:
    """Return the add actions of listed files at their new paths."""
    found = []
    for row in files.to_pylist():
        added = add_file(row)
        vector = added.deletion_vector
        moved = None if vector is None else relocation.vector(vector)
        path = relocation.path(added.path)
        found.append(replace(added, path=path, deletion_vector=moved, **changes))
    return found


def _stage_protocol(stage: TableStage, source: Snapshot) -> None:
    """Stage the features that the files of the source need, and their metadata domains."""
    missing = _features_of_files(source.protocol) - writer_features(stage.protocol)
    if missing:
        stage.staged.protocol = with_features(stage.protocol, missing)
    known = {each.domain for each in stage.staged.domains} | {DOMAIN}
    stage.staged.domains.extend(
        each
        for each in source.domains().values()
        if each.domain.startswith("delta.") and each.domain not in known and not each.removed
    )


def _features_of_files(protocol: Protocol) -> frozenset[str]:
    """Return the listed features that files may need although no column or property shows it."""
    listed = writer_features(protocol) if protocol.min_writer_version >= 7 else frozenset()
    legacy = {name for name, feature in FEATURES.items() if feature.is_legacy}
    return listed - legacy - _FEATURES_OF_THE_LOG
