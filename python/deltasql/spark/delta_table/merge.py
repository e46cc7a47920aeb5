"""MERGE with the builder API of delta-spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql.operations.merge.merge import source_rows, stage_merge
from deltasql.operations.merge.plan import Clause, MergeSpec, star_assignments
from deltasql.spark.delta_table.arguments import assignment_texts, condition_text
from deltasql.spark.exceptions import analysis_error, as_spark_exceptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql.model.schema.schema import StructType
    from deltasql.operations.table_stage import TableStage
    from deltasql.spark.delta_table.arguments import ColumnOrText

    Values = Mapping[str, ColumnOrText]

_RESULT = (
    "num_affected_rows long, num_updated_rows long, num_deleted_rows long, num_inserted_rows long"
)
_NAMES = {"matched": "MATCHED", "not_matched": "NOT MATCHED"}


@dataclass(frozen=True, slots=True)
class MergeInto:
    """The source and the target of a merge, and the condition for a match."""

    spark: SparkSession
    source: DataFrame
    source_schema: StructType
    condition: str
    source_alias: str
    target_alias: str


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause as the user added it; `values` is None for all columns."""

    group: str
    kind: str
    predicate: str | None
    values: Mapping[str, str] | None


class DeltaMergeBuilder:
    """Collects the clauses of a merge in their order; `execute` commits the merge."""

    def __init__(
        self,
        into: MergeInto,
        write: Callable[[Column], str],
        operate: Callable[[Callable[[TableStage], Any]], Any],
    ) -> None:
        self._into, self._write, self._operate = into, write, operate
        self._clauses: list[_Clause] = []
        self._evolves = False

    def whenMatchedUpdate(
        self, condition: ColumnOrText | None = None, set: Values | None = None
    ) -> DeltaMergeBuilder:
        """Set columns of matched rows: `{column: expression}`."""
        return self._add(
            "matched", "update", condition, self._values(set, "set", "whenMatchedUpdate")
        )

    def whenMatchedUpdateAll(self, condition: ColumnOrText | None = None) -> DeltaMergeBuilder:
        """Set all columns of matched rows to the values of the source."""
        return self._add("matched", "update", condition, None)

    def whenMatchedDelete(self, condition: ColumnOrText | None = None) -> DeltaMergeBuilder:
        """Delete matched rows."""
        return self._add("matched", "delete", condition, {})

    def whenNotMatchedInsert(
        self, condition: ColumnOrText | None = None, values: Values | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row for every source row without a match: `{column: expression}`."""
        given = self._values(values, "values", "whenNotMatchedInsert")
        return self._add("not_matched", "insert", condition, given)

    def whenNotMatchedInsertAll(self, condition: ColumnOrText | None = None) -> DeltaMergeBuilder:
        """Insert source rows without a match, with all columns."""
        return self._add("not_matched", "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self, condition: ColumnOrText | None = None, set: Values | None = None
    ) -> DeltaMergeBuilder:
        """Set columns of rows that no source row matches: `{column: expression}`."""
        given = self._values(set, "set", "whenNotMatchedBySourceUpdate")
        return self._add("not_matched_by_source", "update", condition, given)

    def whenNotMatchedBySourceDelete(
        self, condition: ColumnOrText | None = None
    ) -> DeltaMergeBuilder:
        """Delete rows that no source row matches."""
        return self._add("not_matched_by_source", "delete", condition, {})

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add new columns of the source to the table."""
        self._evolves = True
        return self

    @as_spark_exceptions()
    def execute(self) -> DataFrame:
        """Merge and commit; returns the numbers of updated, deleted and inserted rows."""
        self._check()
        into = self._into

        def stage(target: TableStage) -> dict[str, int]:
            rows = source_rows(target, into.source)
            return stage_merge(target, rows, into.source_schema, self._spec(target.schema))

        found = self._operate(stage)
        counts = [found[f"num_target_rows_{what}"] for what in ("updated", "deleted", "inserted")]
        return into.spark.createDataFrame([(sum(counts), *counts)], _RESULT)

    # Check and convert the clauses

    def _values(self, given: Values | None, name: str, method: str) -> dict[str, str]:
        return assignment_texts(given, self._write, f"'{name}' in {method}")

    def _add(
        self,
        group: str,
        kind: str,
        condition: ColumnOrText | None,
        values: Mapping[str, str] | None,
    ) -> DeltaMergeBuilder:
        self._clauses.append(_Clause(group, kind, condition_text(condition, self._write), values))
        return self

    def _check(self) -> None:
        if not self._clauses:
            raise analysis_error(
                "There must be at least one WHEN clause in a MERGE statement.",
                "DELTA_MERGE_MISSING_WHEN",
                help="Add a clause such as whenMatchedUpdateAll() before execute().",
            )
        for group in ("matched", "not_matched", "not_matched_by_source"):
            mine = [each for each in self._clauses if each.group == group]
            if any(each.predicate is None for each in mine[:-1]):
                name = _NAMES.get(group, "NOT MATCHED BY SOURCE")
                condition = f"DELTA_NON_LAST_{name.replace(' ', '_')}_CLAUSE_OMIT_CONDITION"
                raise analysis_error(
                    f"When there are more than one {name} clauses in a MERGE statement, only the "
                    f"last {name} clause can omit the condition.",
                    condition,
                    help="Give every clause but the last a condition.",
                )

    def _spec(self, schema: StructType) -> MergeSpec:
        into = self._into
        spec = MergeSpec(
            into.condition,
            into.source_alias,
            into.target_alias,
            merge_schema=self._evolves,
            flavour="spark",
        )
        groups = {
            "matched": spec.matched,
            "not_matched": spec.not_matched,
            "not_matched_by_source": spec.not_matched_by_source,
        }
        for each in self._clauses:
            values = self._all(each.kind, schema) if each.values is None else each.values
            kind: Any = each.kind
            groups[each.group].append(Clause(kind, each.predicate, values))
        return spec

    def _all(self, kind: str, schema: StructType) -> dict[str, str]:
        """Return assignments to all columns: the table's, or with schema evolution the source's."""
        into = self._into
        source = into.source_schema.names
        found, missing = star_assignments(schema, source, into.source_alias, evolve=self._evolves)
        if missing is not None:
            raise analysis_error(
                f"Cannot resolve {missing} in {kind.upper()} clause given columns "
                f"{', '.join(source)}.",
                "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                help="Give the source this column, or list the columns to set.",
            )
        return found
