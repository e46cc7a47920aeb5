"""MERGE: update, delete and insert rows of a table from the rows of a source.

First the columns of the merge condition are read, to find the pairs of rows that match. Then files
with rows that change are read completely and rewritten. If the merge only inserts rows, no file is
rewritten.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.deltalake_internals import nanoseconds_enabled
from deltasql.engine.base import FILE, ROW
from deltasql.engine.inputs import batches, is_rows, is_spark_frame, is_stream, nanosecond_columns
from deltasql.exceptions import MergeAmbiguityError, UnsupportedFeatureError
from deltasql.exceptions.prefixes import MERGE_ERROR
from deltasql.model.clock import Stopwatch
from deltasql.model.schema.schema import has_nanoseconds
from deltasql.operations.merge.plan import (
    MergePlan,
    MergeSpec,
    evolve_schema,
    matching_predicate,
    resolve_merge,
    source_facts,
)
from deltasql.operations.merge.queries import (
    MATCHES,
    NEW_FILE,
    NUMBER,
    by_file,
    decisions,
    inserted,
    joined,
    joined_by_key,
    matched_sources,
    matches,
    merged_by_key,
    not_in_decisions,
    rewritten,
    unchanged,
    unchanged_by_key,
)
from deltasql.operations.rewrite import (
    checked_rows,
    files_at,
    keeps_change_data,
    live_row_counts,
    write_changed_rows,
    write_new_rows,
)
from deltasql.operations.rules.conform import in_microseconds
from deltasql.operations.rules.row_checks import rules_of
from deltasql.operations.sql.assignments import Computed, explained_casts
from deltasql.operations.sql.queries import column, number, select, subquery, union
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.schema.schema import StructType
    from deltasql.operations.table_stage import TableStage


@dataclass(slots=True)
class _Metrics:
    num_source_rows: int = 0
    num_target_rows_inserted: int = 0
    num_target_rows_updated: int = 0
    num_target_rows_deleted: int = 0
    num_target_rows_copied: int = 0
    num_output_rows: int = 0
    num_target_files_scanned: int = 0
    num_target_files_skipped_during_scan: int = 0
    num_target_files_added: int = 0
    num_target_files_removed: int = 0
    execution_time_ms: int = 0
    scan_time_ms: int = 0
    rewrite_time_ms: int = 0

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@adds_table_to_errors
def source_rows(target: TableStage, source: object) -> Relation:
    """Return the rows of a merge's source as a relation of the engine.

    As in deltalake, timestamps with nanoseconds are truncated to microseconds, unless nanoseconds
    are enabled. If the table itself has nanoseconds, an error is raised instead.
    """
    is_arrow = is_rows(source) and not is_spark_frame(source)
    if not is_arrow or nanoseconds_enabled():
        return target.engine.rows(source)
    given = batches(source)
    names = nanosecond_columns(given.schema)
    if names and has_nanoseconds(target.schema):
        raise UnsupportedFeatureError(
            f"column {names[0]!r} of the source has nanoseconds, as the table does, but "
            "nanosecond timestamps are not enabled in this process",
            table=target.name,
            features=("timestampNanos",),
            help="Call deltasql.enable_nanosecond_timestamps() first.",
        )
    if names:
        given = in_microseconds(given)
    return target.engine.rows(given if names or is_stream(source) else source)


@adds_table_to_errors
def stage_merge(
    target: TableStage,
    source: Relation,
    source_schema: StructType,
    spec: MergeSpec,
    *,
    options: WriteOptions | None = None,
) -> dict[str, int]:
    """Stage a merge and return deltalake's metrics."""
    clock, metrics = Stopwatch(), _Metrics()
    evolved = spec.merge_schema and evolve_schema(target, source_schema, spec)
    plan = resolve_merge(target.schema, source_schema, spec)
    work = _Merge(target, plan, spec, target.engine.numbered(source, NUMBER), metrics, options)
    if not spec.clauses:
        work.list_files()
    else:
        work.run(clock)
    metrics.execution_time_ms = clock.total_ms()
    if metrics.num_target_files_added or metrics.num_target_files_removed or evolved:
        target.set_commit_info("MERGE", spec.parameters(), metrics.as_dict())
    return metrics.as_dict()


class _Merge:
    """One run of a merge: find the pairs that match, choose a clause per row, write the files."""

    def __init__(
        self,
        target: TableStage,
        plan: MergePlan,
        spec: MergeSpec,
        source: Relation,
        metrics: _Metrics,
        options: WriteOptions | None,
    ) -> None:
        self.target, self.plan, self.spec = target, plan, spec
        self.engine, self.source = target.engine, source
        self.metrics, self.options = metrics, options
        self.pairs: Relation | None = None
        """The pairs of rows that match; None if no file of the target can match."""
        self.decided: Relation | None = None
        """The clause of each target row that changes; None if no row changes."""
        self.by_key = self.engine.streams_full_joins and plan.has_key and plan.wants_every_pair
        """Whether one join by the merge condition computes the new rows, without stored pairs.

        This is possible if a clause applies to each pair and each target row has at most one pair.
        """

    def run(self, clock: Stopwatch) -> None:
        """Find the rows that change, rewrite their files, and stage the result."""
        files = self.list_files()
        scan = self.engine.scan(self.target.live(files), positions=True) if len(files) else None
        affected: pa.Table = files.slice(0, 0)
        indexes: list[int] = []
        if scan is not None:
            self.pairs = self._pairs(scan)
            indexes = self._decide(files, scan, self.pairs)
            affected = files_at(files, indexes)
        self.by_key = self.by_key and self.decided is self.pairs
        self.metrics.scan_time_ms = clock.lap_ms()
        added = self._rewrite(affected, indexes) if indexes else self._write_new()
        self.target.add(added)
        if len(affected):
            self.target.remove(affected)
        self._count_output(affected, added)
        self.metrics.rewrite_time_ms = clock.lap_ms()

    def list_files(self) -> pa.Table:
        """Return the target files that source rows can match, and add them to the read set."""
        target, metrics = self.target, self.metrics
        facts = source_facts(self.engine, self.plan, self.source)
        metrics.num_source_rows = facts.rows
        limit = None
        if not self.plan.not_matched_by_source:
            limit = matching_predicate(target, self.plan, self.source, facts)
        files = target.files(limit)
        target.read(whole_table=limit is None, predicate=limit, files=files)
        every = len(files) if limit is None else target.count_files()
        metrics.num_target_files_scanned = len(files)
        metrics.num_target_files_skipped_during_scan = every - len(files)
        return files

    def _pairs(self, scan: Relation) -> Relation:
        plan = self.plan
        if not plan.matched and not plan.not_matched_by_source:
            query = matched_sources(plan)
        else:
            only_changes = not plan.not_matched and not plan.not_matched_by_source
            query = matches(plan, only_changes=only_changes)
        pairs = self.engine.query(query, t=scan, s=self.source)
        return pairs if self.by_key else self.engine.keep(pairs)

    def _decide(self, files: pa.Table, scan: Relation, pairs: Relation) -> list[int]:
        """Choose the clause of each target row; return the indexes of the files that change.

        The updated and deleted rows are counted for the metrics.
        """
        plan, metrics, engine = self.plan, self.metrics, self.engine
        if not plan.matched and not plan.not_matched_by_source:
            return []
        counts = self._counted(decisions(), m=pairs)
        several = any(most > 1 for *_, most in counts)
        if several and not self.spec.deletes_whatever_matches:
            raise self._ambiguous(files, pairs)
        # If each target row has one pair and a clause applies to each pair, the pairs already have
        # the clause of each row.
        if plan.wants_every_pair and not several:
            self.decided = pairs
        else:
            self.decided = engine.keep(engine.query(decisions(), m=pairs))
        if plan.not_matched_by_source:
            counts += self._counted(
                not_in_decisions(plan.not_matched_by_source), t=scan, d=self.decided
            )
        by_branch: Counter[int] = Counter()
        for _, branch, rows, _ in counts:
            by_branch[branch] += rows
        updates, deletes = plan.numbers("update"), plan.numbers("delete")
        metrics.num_target_rows_updated = sum(by_branch[number] for number in updates)
        metrics.num_target_rows_deleted = sum(by_branch[number] for number in deletes)
        return sorted({file for file, *_ in counts})

    def _counted(self, rows: exp.Select, **relations: Relation) -> list[tuple[int, int, int, int]]:
        """Count rows by file and clause.

        Return tuples (file, clause, number of rows, maximum of source rows for one target row).
        """
        found = self.engine.collect(self.engine.query(by_file(rows), **relations))
        return list(zip(*(found.column(index).to_pylist() for index in range(4)), strict=True))

    def _write_new(self) -> list[AddFile]:
        """Write only the inserted rows."""
        new = self._inserted()
        if new is None:
            return []
        query, relations = new
        computed = [
            Computed(each.assigned, select(source="s"), {"s": self.source})
            for each in self.plan.not_matched
        ]
        with explained_casts(self.engine, *computed):
            return write_new_rows(self.target, self.engine.query(query, **relations), self.options)

    def _rewrite(self, affected: pa.Table, indexes: list[int]) -> list[AddFile]:
        """Rewrite the affected files, and write the inserted rows.

        `indexes` are the indexes of the affected files in the scan of all files.
        """
        target, plan, engine = self.target, self.plan, self.engine
        scan = engine.scan(target.live(affected), positions=True)
        generated = rules_of(target).generated
        relations: dict[str, Relation]
        if self.by_key:
            rows, relations = joined_by_key(plan), {"t": scan, "s": self.source}
            after: exp.Query = merged_by_key(plan, target.schema, generated)
        else:
            rows, relations = self._joined(scan, indexes)
            after = rewritten(rows, target.schema, plan, generated)
        before = None
        if keeps_change_data(target):
            old = (
                unchanged_by_key(plan, target.schema)
                if self.by_key
                else unchanged(rows, target.schema, plan)
            )
            before = engine.query(old, **relations)
        new = None if self.by_key else self._inserted()
        if new is not None:
            after = union(after, new[0])
            relations = {**relations, **new[1]}
        branches = (*plan.matched, *plan.not_matched_by_source, *plan.not_matched)
        computed = [Computed(each.assigned, rows, relations) for each in branches]
        with explained_casts(engine, *computed):
            final = checked_rows(target, engine.query(after, **relations))
            return write_changed_rows(target, before, final, self.options)

    def _joined(self, scan: Relation, indexes: list[int]) -> tuple[exp.Select, dict[str, Relation]]:
        assert self.decided is not None
        relations = {"t": scan, "d": self.decided, "x": self.source}
        moved = indexes != list(range(len(indexes)))
        if moved:
            numbers = pa.array(range(len(indexes)), pa.int64())
            relations["f"] = self.engine.rows(
                pa.table({FILE: pa.array(indexes, pa.int64()), NEW_FILE: numbers})
            )
        return joined(self.source.columns, moved=moved), relations

    def _inserted(self) -> tuple[exp.Select, dict[str, Relation]] | None:
        """Return the query for the inserted rows and its relations; None if none are inserted."""
        if not self.plan.not_matched:
            return None
        relations = {"n": self.source}
        # With `by_key`, this is called only if no file is rewritten, and then there are no pairs.
        pairs = None if self.by_key else self.pairs
        if pairs is not None:
            relations["m"] = pairs
        query = inserted(
            self.target.schema,
            self.plan,
            rules_of(self.target).generated,
            self.source.columns,
            all_new=pairs is None,
        )
        return query, relations

    def _count_output(self, affected: pa.Table, added: list[AddFile]) -> None:
        metrics = self.metrics
        metrics.num_target_files_added = len(added)
        metrics.num_target_files_removed = len(affected)
        metrics.num_output_rows = sum(
            json.loads(each.stats or "{}")["numRecords"] for each in added
        )
        if len(affected):
            changed = metrics.num_target_rows_updated + metrics.num_target_rows_deleted
            metrics.num_target_rows_copied = sum(live_row_counts(self.target, affected)) - changed
        kept = metrics.num_target_rows_copied + metrics.num_target_rows_updated
        metrics.num_target_rows_inserted = metrics.num_output_rows - kept

    def _ambiguous(self, files: pa.Table, pairs: Relation) -> MergeAmbiguityError:
        several = exp.GT(this=column(MATCHES), expression=number(1))
        query = select(
            column(FILE),
            column(ROW),
            source=subquery(decisions(), "d"),
            where=several,
            limit=1,
        )
        found = self.engine.collect(self.engine.query(query, m=pairs))
        path = files["path"][found[FILE][0].as_py()].as_py()
        row = found[ROW][0].as_py()
        return MergeAmbiguityError(
            "MERGE matched a target row with multiple source rows that satisfy duplicate relevant "
            f"WHEN MATCHED clauses (file: {path}, row ordinal in file: {row})",
            table=self.target.name,
            prefix=MERGE_ERROR,
            help="Give the source one row per key, or add conditions that select one of them.",
        )
