"""Write, delete, update and merge rows: methods that deltalake calls on the raw table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql.api.arguments import (
    check_file_actions,
    check_flags,
    check_mapping,
    check_text,
    check_texts,
    check_unsigned,
    write_options,
)
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, PostCommitHookProperties, Schema, WriterProperties

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.operations.merge.plan import Clause, Kind, MergeSpec


def write(
    table: OpenTable,
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
    """Write rows based on the current snapshot; afterwards the table object has the new version.

    As in deltalake, `name`, `description` and `configuration` apply to new tables only.
    """
    # lazy import: opening a table needs neither Parquet nor the SQL parser
    from deltasql.api.deltalake_compat.write_deltalake import write_to_table

    request = WriteRequest(
        mode=mode,
        schema_mode=schema_mode,
        predicate=predicate,
        partition_by=partition_by,
        options=write_options(writer_properties, target_file_size),
    )
    write_to_table(table, data, request, commit_properties, post_commithook_properties)


def create_write_transaction(
    table: OpenTable,
    actions: Sequence[Any],
    mode: str,
    partition_by: Sequence[str],
    schema: Schema,
    partitions_filters: object = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Commit files that the caller wrote; with `overwrite` they replace existing files."""
    from deltasql.operations.external_writes.actions import (
        stage_actions,  # lazy import: loads the SQL parser
    )

    check_file_actions(actions, mode)

    def operate(tx: MultiTableTransaction) -> None:
        target = tx.target_to_change if mode == "overwrite" else tx.target
        stage_actions(
            target(table.name),
            actions,
            mode=mode,
            schema=schema,
            partition_by=partition_by,
            partition_filters=partitions_filters,
        )

    table.commit(operate, commit_properties, post_commithook_properties)


def delete(
    table: OpenTable,
    predicate: str | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Delete the rows that match a predicate, or all rows; returns metrics as JSON."""
    check_texts(predicate)
    options = write_options(writer_properties)
    metrics = table.commit(
        lambda tx: tx.delete(table.name, predicate, options=options),
        commit_properties,
        post_commithook_properties,
    )
    return json.dumps(metrics)


def update(
    table: OpenTable,
    updates: Mapping[str, str],
    predicate: str | None = None,
    writer_properties: WriterProperties | None = None,
    safe_cast: bool = False,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Set columns of the rows that match a predicate, or of all rows; returns metrics as JSON."""
    check_texts(predicate)
    options = write_options(writer_properties)
    metrics = table.commit(
        lambda tx: tx.update(
            table.name,
            updates,
            predicate=predicate,
            error_on_type_mismatch=not safe_cast,
            options=options,
        ),
        commit_properties,
        post_commithook_properties,
    )
    return json.dumps(metrics)


@dataclass(slots=True)
class MergeBuilder:
    """Collects the clauses of a merge, with the methods of deltalake's PyMergeBuilder."""

    source: object
    arrow_schema: Any
    spec: MergeSpec
    writer_properties: WriterProperties | None
    commit_properties: CommitProperties | None
    post_commithook_properties: PostCommitHookProperties | None

    @property
    def source_alias(self) -> str | None:
        return self.spec.source_alias

    @property
    def target_alias(self) -> str | None:
        return self.spec.target_alias

    @property
    def merge_schema(self) -> bool:
        return self.spec.merge_schema

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None) -> None:
        self._add(self.spec.matched, "update", predicate, self._with_escaped_names(updates))

    def when_matched_delete(self, predicate: str | None) -> None:
        self._add(self.spec.matched, "delete", predicate)

    def when_not_matched_insert(self, updates: Mapping[str, str], predicate: str | None) -> None:
        self._add(self.spec.not_matched, "insert", predicate, self._with_escaped_names(updates))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, str], predicate: str | None
    ) -> None:
        check_mapping(updates)
        self._add(self.spec.not_matched_by_source, "update", predicate, dict(updates))

    def when_not_matched_by_source_delete(self, predicate: str | None) -> None:
        self._add(self.spec.not_matched_by_source, "delete", predicate)

    def _add(
        self,
        clauses: list[Clause],
        kind: Kind,
        predicate: str | None,
        updates: Mapping[str, str] | None = None,
    ) -> None:
        from deltasql.operations.merge.plan import Clause  # lazy import: loads the SQL parser

        check_texts(predicate)
        clauses.append(Clause(kind, predicate, updates or {}))

    def _with_escaped_names(self, updates: Mapping[str, str]) -> dict[str, str]:
        """Escape backquotes in names: deltalake's `..._all` methods do not escape them."""
        check_mapping(updates)
        names = [field.name for field in self.arrow_schema if "`" in field.name]
        if not names:
            return dict(updates)
        from deltasql.api.transaction.merger import quoted  # lazy import: loads the SQL parser

        spelled = {f"`{name}`": quoted(name) for name in names}

        def escaped(text: str) -> str:
            relation, dot, name = text.partition(".`")
            if dot and f"`{name}" in spelled:
                return f"{relation}.{spelled[f'`{name}']}"
            return spelled.get(text, text)

        return {escaped(name): escaped(value) for name, value in updates.items()}


def create_merge_builder(
    table: OpenTable,
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

    The arguments for streaming and spilling have no effect; the catalog's configuration applies.
    """
    from deltasql.operations.merge.plan import MergeSpec  # lazy import: loads the SQL parser

    check_text(predicate)
    check_texts(source_alias, target_alias)
    check_flags(merge_schema, streamed_exec)
    check_unsigned(max_spill_size, max_temp_directory_size)
    return MergeBuilder(
        source,
        batch_schema,
        MergeSpec(predicate, source_alias, target_alias, merge_schema, safe_cast),
        writer_properties,
        commit_properties,
        post_commithook_properties,
    )


def merge_execute(table: OpenTable, merge_builder: MergeBuilder) -> str:
    """Run a merge; returns metrics as JSON."""
    # lazy import: loads the SQL parser
    from deltasql.operations.merge.merge import source_rows, stage_merge
    from deltasql.operations.rules.write_schema import move_partition_columns_last

    def operate(tx: MultiTableTransaction) -> dict[str, int]:
        target = tx.target_to_change(table.name)
        metrics = stage_merge(
            target,
            source_rows(target, merge_builder.source),
            schema_from_any(merge_builder.arrow_schema),
            merge_builder.spec,
            options=write_options(merge_builder.writer_properties),
        )
        if merge_builder.spec.merge_schema:
            move_partition_columns_last(target)
        return metrics

    metrics = table.commit(
        operate, merge_builder.commit_properties, merge_builder.post_commithook_properties
    )
    return json.dumps(metrics)
