"""DELETE, UPDATE and MERGE: methods of the raw table that deltalake calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltasql.api.deltalake_compat.handle.arguments import (
    check_flags,
    check_text_given,
    check_texts,
    check_unsigned,
)
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.api.deltalake_compat.handle.properties import write_options
from deltasql.model.schema.convert import schema_from_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties

    from deltasql.api.deltalake_compat.handle.merge_builder import MergeBuilder
    from deltasql.api.transaction.transaction import MultiTableTransaction


class DmlSide(RawBase):
    """The methods of deltalake's RawDeltaTable that change rows."""

    def delete(
        self,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Delete the rows that match a predicate, or all rows; returns metrics as JSON."""
        check_texts(predicate)
        options = write_options(writer_properties, None)
        metrics = self._commit(
            lambda tx: tx.delete(self.name, predicate, options=options),
            commit_properties,
            post_commithook_properties,
        )
        return json.dumps(metrics)

    def update(
        self,
        updates: Mapping[str, str],
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        safe_cast: bool = False,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Set columns of the rows that match a predicate, or of all rows.

        Returns metrics as JSON.
        """
        check_texts(predicate)
        options = write_options(writer_properties, None)
        metrics = self._commit(
            lambda tx: tx.update(
                self.name,
                updates,
                predicate=predicate,
                error_on_type_mismatch=not safe_cast,
                options=options,
            ),
            commit_properties,
            post_commithook_properties,
        )
        return json.dumps(metrics)

    def create_merge_builder(
        self,
        source: object,
        batch_schema: Any,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        writer_properties: WriterProperties | None = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        safe_cast: bool = False,
        streamed_exec: bool = True,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
    ) -> MergeBuilder:
        """Return a builder for the clauses of a merge.

        Streaming and spilling depend on the catalog's configuration, not on the arguments.
        """
        # late: it parses SQL
        from deltasql.api.deltalake_compat.handle.merge_builder import MergeBuilder
        from deltasql.operations.merge.plan import MergeSpec

        check_text_given(predicate)
        check_texts(source_alias, target_alias)
        check_flags(merge_schema, streamed_exec)
        check_unsigned(max_spill_size, max_temp_directory_size)
        spec = MergeSpec(predicate, source_alias, target_alias, merge_schema, safe_cast)
        return MergeBuilder(
            source,
            batch_schema,
            spec,
            writer_properties,
            commit_properties,
            post_commithook_properties,
        )

    def merge_execute(self, merge_builder: MergeBuilder) -> str:
        """Run a merge; returns metrics as JSON."""
        # late: it parses SQL
        from deltasql.operations.merge.merge import source_rows, stage_merge
        from deltasql.operations.rules.write_schema import move_partition_columns_last

        def operate(tx: MultiTableTransaction) -> dict[str, int]:
            target = tx.target(self.name)
            metrics = stage_merge(
                target,
                source_rows(target, merge_builder.source),
                schema_from_any(merge_builder.arrow_schema),
                merge_builder.spec,
                options=write_options(merge_builder.writer_properties, None),
            )
            if merge_builder.spec.merge_schema:
                move_partition_columns_last(target)
            return metrics

        metrics = self._commit(
            operate, merge_builder.commit_properties, merge_builder.post_commithook_properties
        )
        return json.dumps(metrics)
