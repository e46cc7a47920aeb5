"""Write the files of a MERGE: rewrite the affected files, and write inserted rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.base import FILE
from deltasql.operations.changes.change_data import keeps_change_data
from deltasql.operations.changes.changed_rows import (
    checked_rows,
    write_changed_rows,
    write_new_rows,
)
from deltasql.operations.merge.queries import (
    NEW_FILE,
    inserted,
    joined,
    joined_by_key,
    merged_by_key,
    rewritten,
    unchanged,
    unchanged_by_key,
)
from deltasql.operations.rules.row_checks import rules_of
from deltasql.operations.sql.assignments import Computed, explained_casts
from deltasql.operations.sql.queries import select, union

if TYPE_CHECKING:
    from sqlglot import exp

    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.merge.plan import MergePlan
    from deltasql.operations.table_stage import TableStage


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The decisions of a merge, from which the files are written."""

    target: TableStage
    plan: MergePlan
    source: Relation
    options: WriteOptions | None
    pairs: Relation | None
    """The pairs of rows that match; None if the target has no files to match."""
    decided: Relation | None
    """The clause of each target row that changes; None if no row changes."""
    by_key: bool
    """Whether each pair has a clause and each target row one pair at most, and joins are cheap."""

    def write(self, affected: pa.Table, indexes: list[int]) -> list[AddFile]:
        """Write the files; `indexes` are those of the affected files in the first scan."""
        if not len(affected):
            return self._write_new()
        return self._rewrite_files(affected, indexes)

    def _write_new(self) -> list[AddFile]:
        """Write only the inserted rows."""
        new = self._inserted()
        if new is None:
            return []
        query, relations = new
        engine = self.target.engine
        computed = [
            Computed(each.assigned, select(source="s"), {"s": self.source})
            for each in self.plan.not_matched
        ]
        with explained_casts(engine, *computed):
            return write_new_rows(self.target, engine.query(query, **relations), self.options)

    def _rewrite_files(self, affected: pa.Table, indexes: list[int]) -> list[AddFile]:
        """Rewrite all rows of the affected files, together with the inserted rows."""
        target, plan, engine = self.target, self.plan, self.target.engine
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
        engine = self.target.engine
        relations = {"t": scan, "d": self.decided, "x": self.source}
        moved = indexes != list(range(len(indexes)))
        if moved:
            numbers = pa.array(range(len(indexes)), pa.int64())
            relations["f"] = engine.rows(
                pa.table({FILE: pa.array(indexes, pa.int64()), NEW_FILE: numbers})
            )
        return joined(self.source.columns, moved=moved), relations

    def _inserted(self) -> tuple[exp.Select, dict[str, Relation]] | None:
        """Return the query for new rows, over the source and the pairs."""
        if not self.plan.not_matched:
            return None
        relations = {"n": self.source}
        # With `by_key`, a merge that rewrites no file has no pairs.
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
