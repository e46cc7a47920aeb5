"""Merger: a MERGE inside a transaction, with the methods of deltalake's TableMerger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.inputs import batches, is_spark_frame
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.merge.merge import source_rows, stage_merge
from deltasql.operations.merge.plan import Clause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from deltasql.engine.base import WriteOptions
    from deltasql.model.schema.schema import StructType
    from deltasql.operations.merge.plan import MergeSpec
    from deltasql.operations.table_stage import TableStage


class Merger:
    """Collects the clauses of a merge in the order in which they apply; `execute` stages it.

    The methods are those of `deltalake.table.TableMerger`.
    """

    def __init__(
        self, spec: MergeSpec, columns: Sequence[str], stage: Callable[[], dict[str, int]]
    ) -> None:
        """`columns` are the columns of the source; `stage` stages the merge."""
        self._spec, self._columns, self._stage = spec, columns, stage

    @property
    def source_columns(self) -> Sequence[str]:
        """The names of the source's columns."""
        return self._columns

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Update rows that match: `updates` is `{column: expression}`."""
        self._spec.matched.append(Clause("update", predicate, dict(updates)))
        return self

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Update rows that match with all columns of the source except `except_cols`."""
        return self.when_matched_update(self._all(except_cols), predicate)

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete rows that match."""
        self._spec.matched.append(Clause("delete", predicate))
        return self

    def when_not_matched_insert(
        self, updates: Mapping[str, str], predicate: str | None = None
    ) -> Self:
        """Insert source rows without a match: `updates` is `{column: expression}`."""
        self._spec.not_matched.append(Clause("insert", predicate, dict(updates)))
        return self

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert source rows without a match, with all their columns except `except_cols`."""
        return self.when_not_matched_insert(self._all(except_cols), predicate)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, str], predicate: str | None = None
    ) -> Self:
        """Update table rows that no source row matches."""
        self._spec.not_matched_by_source.append(Clause("update", predicate, dict(updates)))
        return self

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete table rows that no source row matches."""
        self._spec.not_matched_by_source.append(Clause("delete", predicate))
        return self

    def execute(self) -> dict[str, int]:
        """Stage the merge and return its metrics."""
        return self._stage()

    def _all(self, except_cols: Sequence[str] | None) -> dict[str, str]:
        source = self._spec.source_alias or "source"
        names = [name for name in self._columns if name not in (except_cols or ())]
        return {quoted(name): f"{quoted(source)}.{quoted(name)}" for name in names}


def start_merge(
    target: Callable[[object], TableStage],
    source: object,
    spec: MergeSpec,
    *,
    source_schema: StructType | None,
    options: WriteOptions | None,
) -> Merger:
    """Return a Merger for source rows; `target` opens the table with the engine of these rows."""
    rows: Any = source
    schema = source_schema
    if schema is None:
        rows = source if is_spark_frame(source) else batches(source)
        schema = schema_from_any(rows.schema)

    def stage() -> dict[str, int]:
        stage_of_table = target(rows)
        return stage_merge(
            stage_of_table, source_rows(stage_of_table, rows), schema, spec, options=options
        )

    return Merger(spec, schema.names, stage)


def quoted(name: str) -> str:
    """Quote a column name for an SQL expression.

    >>> quoted("my column")
    '`my column`'
    """
    return "`" + name.replace("`", "``") + "`"
