"""WriteSide: write rows and commit files, methods of the raw table that deltalake calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.api.deltalake_compat.handle.arguments import check_file_actions
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.api.deltalake_compat.handle.properties import write_options
from deltasql.exceptions import TableExistsError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.operations.write_request import WriteRequest
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, PostCommitHookProperties, Schema, WriterProperties

    from deltasql.api.transaction.transaction import MultiTableTransaction


class WriteSide(RawBase):
    """The methods of deltalake's RawDeltaTable that write."""

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
        """Write rows based on the current snapshot, and change it to the new version.

        As in deltalake, `name`, `description` and `configuration` apply to new tables only.
        """
        request = WriteRequest(
            mode=mode,
            schema_mode=schema_mode,
            predicate=predicate,
            partition_by=partition_by,
            options=write_options(writer_properties, target_file_size),
        )
        self.write_rows(data, request, commit_properties, post_commithook_properties)

    def write_rows(
        self,
        data: object,
        request: WriteRequest,
        commit_properties: CommitProperties | None,
        post_commithook_properties: PostCommitHookProperties | None,
    ) -> None:
        """Write rows based on the current snapshot, and change it to the new version."""
        # late: opening a table needs neither Parquet nor the SQL parser
        from deltasql.operations.rules.write_schema import move_partition_columns_last
        from deltasql.operations.write import check_modes

        check_modes(request.mode, request.schema_mode)
        if request.mode == "error":
            raise TableExistsError(
                f"A table already exists at: {location_url(self.row.location)}/",
                table=self.name,
                prefix=GENERIC_ERROR,
            )
        if request.mode == "ignore":
            return

        def operate(tx: MultiTableTransaction) -> None:
            tx.write_rows(self.name, data, request)
            if request.schema_mode == "merge":
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
        """Commit files that the caller wrote; with `overwrite` they replace existing files."""
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
