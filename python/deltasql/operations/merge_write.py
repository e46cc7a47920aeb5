"""The files that come of a MERGE: touched ones written again, and rows that are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.operations.assignments import Computed, explained_casts
from deltasql.operations.change_data import keeps_change_data
from deltasql.operations.changed_rows import (
    ACTION,
    DELETED,
    UPDATED,
    checked_rows,
    has_action,
    write_changed_rows,
    write_new_rows,
)
from deltasql.operations.checks import rules_of
from deltasql.operations.merge_plan import TARGET
from deltasql.operations.merge_rows import (
    NUMBER,
    changed_places,
    changes,
    copied_columns,
    inserted,
    joined,
    rewritten,
    unchanged,
)
from deltasql.operations.revision import revised_files
from deltasql.operations.sql_types import column, identifier
from deltasql.operations.touched import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.merge_plan import MergePlan
    from deltasql.operations.target import Target


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What is known when all rows are decided."""

    target: Target
    plan: MergePlan
    source: Relation
    options: WriteOptions | None
    pairs: Relation | None
    """The pairs of rows that match; None when there is nothing to match."""
    decided: Relation | None
    """What becomes of rows of the target; None when nothing does."""

    def write(self, touched: pa.Table, places: list[int]) -> list[AddFile]:
        """Write the files; `places` are those that touched ones had in the first scan."""
        if not len(touched):
            return self._write_new()
        if not self._may_revise(touched):
            return self._write_anew(touched, places)
        added, left = self._revise(touched, places)
        if not left:
            return added + self._write_new()
        rest = [places[number] for number in left]
        return added + self._write_anew(chosen(touched, left), rest)

    def _write_new(self) -> list[AddFile]:
        """Write the rows that match nothing."""
        new = self._inserted()
        if new is None:
            return []
        query, relations = new
        engine = self.target.engine
        computed = [
            Computed(each.assigned, exp.select().from_(exp.to_table("s")), {"s": self.source})
            for each in self.plan.not_matched
        ]
        with explained_casts(engine, *computed):
            return write_new_rows(self.target, engine.query(query, **relations), self.options)

    def _write_anew(self, touched: pa.Table, places: list[int]) -> list[AddFile]:
        """Write all rows of files again, and those that match nothing along with them."""
        target, plan, engine = self.target, self.plan, self.target.engine
        rows, relations = self._joined(touched, places)
        after = rewritten(rows, target.schema, plan, rules_of(target).generated)
        before = engine.query(unchanged(rows, target.schema, plan), **relations)
        whole: exp.Query = after
        new = self._inserted()
        if new is not None:
            whole = exp.union(after, new[0], distinct=False)
            relations = {**relations, **new[1]}
        branches = (*plan.matched, *plan.not_matched_by_source, *plan.not_matched)
        computed = [Computed(each.assigned, rows, relations) for each in branches]
        with explained_casts(engine, *computed):
            final = checked_rows(target, engine.query(whole, **relations))
            return write_changed_rows(target, before, final, self.options)

    def _may_revise(self, touched: pa.Table) -> bool:
        target = self.target
        return (
            not self.plan.not_matched_by_source
            and not keeps_change_data(target)
            and target.engine.revises(target.live(touched), target.plan(self.options))
            and set(target.partition_columns).isdisjoint(self.plan.changed_columns())
            and set(target.partition_columns).isdisjoint(rules_of(target).generated)
        )

    def _revise(self, touched: pa.Table, places: list[int]) -> tuple[list[AddFile], list[int]]:
        """Write files again with changes alone; return also which are left to be written anew."""
        target, plan, engine = self.target, self.plan, self.target.engine
        generated = rules_of(target).generated
        rows, relations = self._joined(touched, places)
        with explained_casts(
            engine, *(Computed(each.assigned, rows, relations) for each in plan.matched)
        ):
            query, used = changes(plan, target.schema, generated, rows, relations)
            if rules_of(target):
                changed = self._checked_changes(rows, relations, query.named_selects)
            else:
                changed = self._looked_up(query, relations) or engine.query(query, **used)
            numbers = list(range(len(places)))
            return revised_files(target, touched, numbers, changed, target.plan(self.options))

    def _looked_up(self, query: exp.Select, relations: Mapping[str, Relation]) -> Relation | None:
        """Return changes that are nothing but values of the source, if an engine can look up."""
        columns = copied_columns(query)
        if columns is None:
            return None
        engine = self.target.engine
        places = engine.query(changed_places(), d=relations["d"], f=relations["f"])
        return engine.looked_up(places, self.source, NUMBER, columns)

    def _checked_changes(
        self, rows: exp.Select, relations: Mapping[str, Relation], names: Sequence[str]
    ) -> Relation:
        """Return changes, computed once: a random value that is checked has to be written."""
        target, engine = self.target, self.target.engine
        after = rewritten(rows, target.schema, self.plan, rules_of(target).generated)
        after = after.select(column(FILE, TARGET), column(ROW, TARGET))
        every = [column(name, "r") for name in (*target.schema.names, ACTION, FILE, ROW)]
        touched = has_action(UPDATED, DELETED, relation="r")
        query = exp.select(*every).from_(after.subquery("r")).where(touched)
        kept = checked_rows(target, engine.query(query, **relations))
        dropped = exp.alias_(has_action(DELETED), identifier(DROPPED))
        columns = [dropped if name == DROPPED else column(name) for name in names]
        return engine.query(exp.select(*columns).from_(exp.to_table("r")), r=kept)

    def _joined(
        self, touched: pa.Table, places: list[int]
    ) -> tuple[exp.Select, Mapping[str, Relation]]:
        assert self.decided is not None
        engine = self.target.engine
        scan = engine.scan(self.target.live(touched), positions=True)
        return joined(engine, scan, self.decided, self.source, places)

    def _inserted(self) -> tuple[exp.Select, dict[str, Relation]] | None:
        """Return the query for new rows, over the source and the pairs."""
        if not self.plan.not_matched:
            return None
        rest = None
        if self.pairs is not None:
            rest = self.target.engine.unmatched(self.source, self.pairs, NUMBER)
        relations = {"n": rest or self.source}
        all_new = rest is not None or self.pairs is None
        if self.pairs is not None and not all_new:
            relations["m"] = self.pairs
        query = inserted(
            self.target.schema,
            self.plan,
            rules_of(self.target).generated,
            self.source.columns,
            all_new=all_new,
        )
        return query, relations
