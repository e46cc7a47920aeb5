"""Maintenance advice: what OPTIMIZE and VACUUM would do, estimated from the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.model.clock import from_ms, now_ms
from deltasql.model.counts import many, size_text
from deltasql.model.properties import TableProperties
from deltasql.model.report import Report
from deltasql.operations.vacuum.file_search import VACUUM_KEPT, VACUUM_RETAINED, VACUUMED_BEFORE
from deltasql.store.records import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.api.inspect.stats import Measured
    from deltasql.snapshot.snapshot import Snapshot

_HOUR = timedelta(hours=1)
# OPTIMIZE is worthwhile if it saves at least this many files, and this share of all files.
_WORTHWHILE_FILES, WORTHWHILE_SHARE = 8, 0.1


@dataclass(frozen=True, slots=True)
class OptimizeAdvice(Report):
    """An estimate of what OPTIMIZE would do; it combines only files of the same partition.

    Small files are those below `target_size`. A small file that cannot be combined with another one
    is not rewritten. A larger file with a deletion vector is counted among `rewritten_files`,
    although OPTIMIZE rewrites it only if many of its rows are deleted.
    """

    small_files: int
    small_bytes: int
    target_size: int
    new_files: int
    rewritten_files: int
    rewritten_bytes: int
    partitions: int
    worthwhile: bool
    auto_compact: bool
    """Whether `mirror run` compacts small files of the table."""


@dataclass(frozen=True, slots=True)
class VacuumAdvice(Report):
    """An upper limit for what VACUUM deletes; it keeps files that a restore made live again."""

    files: int
    bytes: int
    retention_hours: float
    last_vacuum: datetime | None
    overdue: bool


@dataclass(frozen=True, slots=True)
class MaintenanceAdvice(Report):
    """The maintenance that a table needs now, and the suggested commands."""

    name: str
    version: int
    optimize: OptimizeAdvice
    vacuum: VacuumAdvice
    suggestions: tuple[str, ...]


def advice(measured: Measured, name: str) -> MaintenanceAdvice:
    """Return the advice for a table."""
    optimize, vacuum = optimize_advice(measured), vacuum_advice(measured.snapshot)
    suggestions = []
    if optimize.worthwhile:
        suggestions.append(
            f"deltasql optimize {name}: {optimize.rewritten_files:,} files become about "
            f"{optimize.new_files:,}"
        )
    if vacuum.overdue:
        suggestions.append(
            f"deltasql vacuum {name}: deletes up to {many(vacuum.files, 'file')} of "
            f"{size_text(vacuum.bytes)}"
        )
    return MaintenanceAdvice(name, measured.snapshot.version, optimize, vacuum, tuple(suggestions))


def optimize_advice(measured: Measured) -> OptimizeAdvice:
    """Estimate which files OPTIMIZE would rewrite."""
    wanted, live, small = measured.wanted_size, measured.live, measured.small
    chosen = live.filter(pc.or_(pc.less(live["size"], wanted), pc.equal(live["has_vector"], 1)))
    is_large = pc.cast(pc.greater(chosen["size"], wanted // 2), pa.int64())
    sums = chosen.append_column("is_large", is_large).group_by("partition_id")
    parts = sums.aggregate(
        [("size", "count"), ("size", "sum"), ("has_vector", "sum"), ("is_large", "sum")]
    )
    names = ("size_count", "size_sum", "has_vector_sum", "is_large_sum")
    columns = [parts[each].to_pylist() for each in names]
    rewritten = rewritten_parts(starmap(PartFiles, zip(*columns, strict=True)), wanted)
    count = sum(part.files for part, _ in rewritten)
    made = sum(new_files for _, new_files in rewritten)
    return OptimizeAdvice(
        small_files=len(small),
        small_bytes=int(pc.sum(small["size"]).as_py() or 0),
        target_size=wanted,
        new_files=made,
        rewritten_files=count,
        rewritten_bytes=sum(part.bytes for part, _ in rewritten),
        partitions=len(rewritten),
        worthwhile=count - made >= max(_WORTHWHILE_FILES, len(live) * WORTHWHILE_SHARE),
        auto_compact=TableProperties(measured.snapshot.metadata.configuration).auto_compact,
    )


class PartFiles(NamedTuple):
    """The files of one partition that are small or have a deletion vector."""

    files: int
    bytes: int
    vectors: int
    large: int  # files above half of the target size: no two of them fit into one new file


def rewritten_parts(parts: Iterable[PartFiles], wanted: int) -> list[tuple[PartFiles, int]]:
    """Return the partitions that OPTIMIZE would rewrite, with an estimate of the new files.

    A partition that would have as many files as before is rewritten only if one of its files has a
    deletion vector.
    """
    estimates = ((part, max(1, -(-part.bytes // wanted), part.large)) for part in parts)
    return [(part, made) for part, made in estimates if part.files > made or part.vectors]


def vacuum_advice(snapshot: Snapshot) -> VacuumAdvice:
    """Count the files that no retained version needs."""
    retention = TableProperties(snapshot.metadata.configuration).deleted_file_retention
    table_id = snapshot.table.table_id
    before_ms = now_ms() - retention // timedelta(milliseconds=1)
    rows = snapshot.store.query("last_operation_at", table_id=table_id, operation="VACUUM END")
    info = (load(rows[0][2]) or {}) if rows else {}
    is_marked = VACUUMED_BEFORE in info and not info.get(VACUUM_KEPT)
    files, size = snapshot.store.query(
        "tombstone_totals",
        table_id=table_id,
        before_ms=before_ms,
        after_version=int(info.get(VACUUM_RETAINED, -1)) if is_marked else -1,
        after_ms=int(info[VACUUMED_BEFORE]) if is_marked else -1,
    )[0]
    return VacuumAdvice(
        files=int(files),
        bytes=int(size),
        retention_hours=retention / _HOUR,
        last_vacuum=from_ms(rows[0][1]) if rows else None,
        overdue=int(files) > 0 and (not rows or rows[0][1] < before_ms),
    )
