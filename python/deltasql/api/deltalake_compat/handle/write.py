"""Writing rows through a handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.api.deltalake_compat.handle.arguments import check_file_actions
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.api.deltalake_compat.handle.properties import write_options
from deltasql.exceptions import TableExistsError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, PostCommitHookProperties, Schema, WriterProperties

    from deltasql.api.transaction.transaction import MultiTableTransaction


class WriteSide(RawBase):
    """The writing half of deltalake's RawDeltaTable."""

    def write(
        self,
        data: object,
        batch_schema: object = None,
        partition_by: list[str] | str | None = None,
        mode: str = "error",
        schema_mode: str | None = None,
        predicate: str | None = None,
        target_file_size: int | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        writer_properties: WriterProperties | None = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Write rows to the version this handle looks at, and follow to the new one.

        As in deltalake, name, description and configuration are for new tables only.
        """
        # late: who only opens a table needs no Parquet and no SQL
        from deltasql.operations.rules.write_schema import move_partition_columns_last
        from deltasql.operations.write import check_modes

        check_modes(mode, schema_mode)
        if mode == "error":
            raise TableExistsError(
                f"A table already exists at: {location_url(self.row.location)}/",
                table=self.name,
                prefix=GENERIC_ERROR,
            )
        if mode == "ignore":
            return

        def operate(tx: MultiTableTransaction) -> None:
            tx.write(
                self.name,
                data,
                mode=mode,
                schema_mode=schema_mode,
                predicate=predicate,
                partition_by=partition_by,
                options=write_options(writer_properties, target_file_size),
            )
            if schema_mode == "merge":
                move_partition_columns_last(tx.target(self.name))

        self._commit(operate, commit_properties, post_commithook_properties)

    def create_write_transaction(
        self,
        actions: Sequence[Any],
        mode: str,
        partition_by: Sequence[str],
        schema: Schema,
        partitions_filters: object = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit files that somebody else wrote; with `overwrite` they replace what is there."""
        from deltasql.operations.add_actions import stage_actions  # late: it parses SQL

        check_file_actions(actions, mode)

        def operate(tx: MultiTableTransaction) -> None:
            stage_actions(
                tx.target(self.name),
                actions,
                mode=mode,
                schema=schema,
                partition_by=partition_by,
                partition_filters=partitions_filters,
            )

        self._commit(operate, commit_properties, post_commithook_properties)
