"""What a transaction can do to the rows that its tables hold."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deltasql.engine.choose import is_spark_frame
from deltasql.engine.inputs import batches
from deltasql.model.schema.convert import schema_from_any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from deltasql.api.transaction.merger import Merger
    from deltasql.engine.base import WriteOptions
    from deltasql.model.schema.schema import StructType
    from deltasql.operations.merge.plan import MergeSpec
    from deltasql.operations.sql.expressions import Flavour
    from deltasql.operations.table_stage import TableStage


class DmlVerbs:
    """DELETE, UPDATE and MERGE of a MultiTableTransaction."""

    if TYPE_CHECKING:

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> TableStage: ...

    def delete(
        self,
        table: str,
        predicate: str | None = None,
        *,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> dict[str, int]:
        """Delete the rows for which a condition is true, all of them without one."""
        from deltasql.operations.delete import stage_delete  # late: it parses SQL

        target = self.target(table, engine=engine)
        return stage_delete(target, predicate, options=options, flavour=flavour)

    def update(
        self,
        table: str,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        *,
        error_on_type_mismatch: bool = True,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> dict[str, int]:
        """Set columns of the rows for which a condition is true.

        `updates` are SQL expressions by column, `new_values` Python values.
        """
        # late: it parses SQL
        from deltasql.operations.sql.values import expressions_of
        from deltasql.operations.update import stage_update

        return stage_update(
            self.target(table, engine=engine),
            expressions_of(updates, new_values, escapes=flavour == "spark"),
            predicate,
            safe_cast=not error_on_type_mismatch,
            options=options,
            flavour=flavour,
        )

    def merge(
        self,
        table: str,
        source: object,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        *,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        source_schema: StructType | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> Merger:
        """Merge rows into a table: add clauses to the result, then call its `execute`."""
        # late: it parses SQL
        from deltasql.api.transaction.merger import Merger
        from deltasql.operations.merge.plan import MergeSpec

        rows: Any = source
        schema = source_schema
        if schema is None:
            rows = source if is_spark_frame(source) else batches(source)
            schema = schema_from_any(rows.schema)
        spec = MergeSpec(
            predicate, source_alias, target_alias, merge_schema, not error_on_type_mismatch, flavour
        )
        return Merger(
            spec, schema.names, partial(self._merge, table, rows, schema, spec, options, engine)
        )

    def _merge(
        self,
        table: str,
        source: object,
        schema: StructType,
        spec: MergeSpec,
        options: WriteOptions | None,
        engine: str | None,
    ) -> dict[str, int]:
        from deltasql.operations.merge.merge import source_rows, stage_merge  # late: it parses SQL

        target = self.target(table, source, engine=engine)
        return stage_merge(target, source_rows(target, source), schema, spec, options=options)
