"""MERGE: update, delete and insert rows of a table from the rows of a source.

First the columns of the merge condition are read, to find the pairs of rows that match. Then files
with rows that change are read completely and rewritten. If the merge only inserts rows, no file is
rewritten.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.deltalake_internals import nanoseconds_enabled
from deltasql.engine.base import FILE, ROW
from deltasql.engine.inputs import batches, is_rows, is_spark_frame, is_stream, nanosecond_columns
from deltasql.exceptions import MergeAmbiguityError, UnsupportedFeatureError
from deltasql.exceptions.prefixes import MERGE_ERROR
from deltasql.model.clock import Stopwatch
from deltasql.model.schema.identity import identity_columns
from deltasql.model.schema.schema import has_nanoseconds
from deltasql.operations.deletion_vectors import (
    files_to_mark,
    mark_deleted,
    uses_vectors,
)
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
    changed,
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
    ACTION,
    INSERTED,
    checked_rows,
    files_at,
    has_action,
    keeps_change_data,
    live_row_counts,
    write_changed_rows,
    write_new_rows,
)
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.rules.conform import in_microseconds
from deltasql.operations.rules.identity import (
    missing_identity,
    reject_identity_update,
    with_numbers_where_null,
)
from deltasql.operations.rules.row_checks import rules_of
from deltasql.operations.sql.assignments import Computed, explained_casts, sets_column
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
    _check_identity(target, plan)
    work = _Merge(target, plan, spec, target.engine.numbered(source, NUMBER), metrics, options)
    if not spec.clauses:
        work.list_files()
    else:
        work.run(clock)
    metrics.execution_time_ms = clock.total_ms()
    reported = {**metrics.as_dict(), **work.vectors}
    changes_files = metrics.num_target_files_added or metrics.num_target_files_removed
    if changes_files or work.vectors or evolved:
        target.set_commit_info("MERGE", spec.parameters(), reported)
    return reported


def _check_identity(target: TableStage, plan: MergePlan) -> None:
    """Raise if a clause sets an identity column to a value that the table does not allow."""
    for each in (*plan.matched, *plan.not_matched_by_source):
        reject_identity_update(target.schema, each.assigned)
    for each in plan.not_matched:
        missing_identity(target, {path[0] for path in each.assigned})


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
        self.changed: Relation | None = None
        """The rows that change in files that get a deletion vector, with their positions."""
        self.by_key = (
            self.engine.streams_full_joins
            and plan.has_key
            and plan.wants_every_pair
            and not uses_vectors(target)
        )
        """Whether one join by the merge condition computes the new rows, without stored pairs.

        This is possible if a clause applies to each pair, each target row has at most one pair, and
        the positions of the rows that change are not needed for deletion vectors.
        """
        self.vectors: dict[str, int] = {}
        """Metrics of the deletion vectors; empty if none was written."""

    def run(self, clock: Stopwatch) -> None:
        """Find the rows that change, rewrite their files, and stage the result."""
        files = self.list_files()
        scan = self.engine.scan(self.target.live(files), positions=True) if len(files) else None
        changes: dict[int, int] = {}
        if scan is not None:
            self.pairs = self._pairs(scan)
            changes = self._decide(files, scan, self.pairs)
        self.by_key = self.by_key and self.decided is self.pairs
        self.metrics.scan_time_ms = clock.lap_ms()
        indexes = sorted(changes)
        in_order = [changes[index] for index in indexes]
        to_mark = files_to_mark(self.target, files_at(files, indexes), in_order)
        marked = [indexes[number] for number in to_mark]
        replaced = [index for index in indexes if index not in set(marked)]
        added = self._rewrite(files, replaced, marked) if indexes else self._write_new()
        removed = files_at(files, replaced)
        self._count_output(removed, sum(changes[index] for index in replaced), added)
        if len(removed):
            self.target.remove(removed)
        self.target.add(added)
        if marked:
            assert self.changed is not None
            deleted = self.engine.positions(self.changed)
            self.vectors = mark_deleted(self.target, files_at(files, marked), deleted)
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

    def _decide(self, files: pa.Table, scan: Relation, pairs: Relation) -> dict[int, int]:
        """Choose the clause of each target row; return how many rows of each file change.

        The updated and deleted rows are counted for the metrics.
        """
        plan, metrics, engine = self.plan, self.metrics, self.engine
        if not plan.matched and not plan.not_matched_by_source:
            return {}
        counts = self._counted(decisions(), m=pairs)
        several = any(most > 1 for *_, most in counts)
        if several and not self.spec.deletes_whatever_matches:
            raise self._ambiguous(files, pairs)
        # If each target row has one pair and a clause applies to each pair, no query is needed to
        # choose a clause: the pairs already have the clause of each row.
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
        by_index: Counter[int] = Counter()
        for file, _, rows, _ in counts:
            by_index[file] += rows
        return dict(by_index)

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
            new_rows = self._with_numbers(self.engine.query(query, **relations))
            return write_new_rows(self.target, new_rows, self.options)

    def _rewrite(self, files: pa.Table, replaced: list[int], marked: list[int]) -> list[AddFile]:
        """Write the rows of replaced files, the updated rows of marked files, and inserted rows.

        `replaced` and `marked` are positions in `files`, the table of all scanned files.
        """
        target, engine = self.target, self.engine
        new = None if self.by_key else self._inserted()
        groups = [each for each in (replaced, marked) if each]
        joined_groups = [self._joined(files, each) for each in groups]
        branches = (*self.plan.matched, *self.plan.not_matched_by_source, *self.plan.not_matched)
        computed = [
            Computed(each.assigned, rows, relations)
            for rows, relations in joined_groups
            for each in branches
        ]
        with explained_casts(engine, *computed):
            after = [
                self._after(rows, relations, is_marked=group is marked)
                for group, (rows, relations) in zip(groups, joined_groups, strict=True)
            ]
            if new is not None:
                after.append(engine.query(new[0], **new[1]))
            final = checked_rows(target, self._with_numbers(self._together(after)))
            before = None
            if keeps_change_data(target):
                before = self._together([self._before(*each) for each in joined_groups])
            return write_changed_rows(target, before, final, self.options)

    def _after(
        self, rows: exp.Select, relations: dict[str, Relation], *, is_marked: bool
    ) -> Relation:
        """Return the joined rows after the merge, with column ACTION.

        Rows of marked files are returned only if they change.

        The changed rows of marked files are computed once and stored. If a random value made two
        computations differ, the rows that are marked would not be the rows that are written.
        """
        plan, generated = self.plan, rules_of(self.target).generated
        schema = self.target.stored_schema
        if is_marked:
            found = self.engine.query(changed(rows, schema, plan, generated), **relations)
            self.changed = self.engine.keep(found)
            columns = [column(name, "c") for name in (*schema.names, ACTION)]
            return self.engine.query(select(*columns, source="c"), c=self.changed)
        if self.by_key:
            return self.engine.query(merged_by_key(plan, schema, generated), **relations)
        return self.engine.query(rewritten(rows, schema, plan, generated), **relations)

    def _before(self, rows: exp.Select, relations: dict[str, Relation]) -> Relation:
        """Return the joined rows before the merge, with column ACTION."""
        plan, schema = self.plan, self.target.stored_schema
        old = unchanged_by_key(plan, schema) if self.by_key else unchanged(rows, schema, plan)
        return self.engine.query(old, **relations)

    def _together(self, parts: list[Relation]) -> Relation:
        """Return the rows of all parts, which have the same columns."""
        if len(parts) == 1:
            return parts[0]
        names = [f"r{number}" for number in range(len(parts))]
        columns = parts[0].columns
        every: list[exp.Query] = [
            select(*(column(each, name) for each in columns), source=name) for name in names
        ]
        return self.engine.query(reduce(union, every), **dict(zip(names, parts, strict=True)))

    def _with_numbers(self, rows: Relation) -> Relation:
        """Fill the identity columns of inserted rows whose clause does not set them."""
        names = [
            name
            for name in identity_columns(self.target.schema)
            if not all(sets_column(each.assigned, name) for each in self.plan.not_matched)
        ]
        return with_numbers_where_null(self.target, names, rows, has_action(INSERTED))

    def _joined(
        self, files: pa.Table, indexes: list[int]
    ) -> tuple[exp.Select, dict[str, Relation]]:
        """Return the query that joins the rows of some files with the source, and its relations."""
        scan = scan_to_rewrite(self.target, files_at(files, indexes), positions=True)
        if self.by_key:
            return joined_by_key(self.plan), {"t": scan, "s": self.source}
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
            self.target.stored_schema,
            self.plan,
            rules_of(self.target).generated,
            self.source.columns,
            all_new=pairs is None,
        )
        return query, relations

    def _count_output(self, removed: pa.Table, changes: int, added: list[AddFile]) -> None:
        """Count files and rows; `changes` rows of the removed files were updated or deleted."""
        metrics = self.metrics
        metrics.num_target_files_added = len(added)
        metrics.num_target_files_removed = len(removed)
        metrics.num_output_rows = sum(
            json.loads(each.stats or "{}")["numRecords"] for each in added
        )
        if len(removed):
            metrics.num_target_rows_copied = sum(live_row_counts(self.target, removed)) - changes
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
