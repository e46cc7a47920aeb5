"""DELETE, UPDATE and MERGE of a handle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltasql.api.merger import quoted
from deltasql.api.raw.arguments import check_mapping, check_text_given, check_texts, check_unsigned
from deltasql.api.raw.base import RawBase
from deltasql.api.raw.properties import write_options
from deltasql.model.schema_convert import schema_from_any
from deltasql.operations.merge import source_rows, stage_merge
from deltasql.operations.merge_plan import Clause, MergeSpec
from deltasql.operations.write_schema import partitions_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties

    from deltasql.api.transaction import MultiTableTransaction


class MergeBuilder:
    """Gathers the clauses of a merge: what deltalake's TableMerger calls a PyMergeBuilder."""

    def __init__(
        self,
        source: object,
        arrow_schema: Any,
        spec: MergeSpec,
        writer_properties: WriterProperties | None,
        commit_properties: CommitProperties | None,
        post_commithook_properties: PostCommitHookProperties | None,
    ) -> None:
        self.source, self.arrow_schema, self.spec = source, arrow_schema, spec
        self.writer_properties = writer_properties
        self.commit_properties = commit_properties
        self.post_commithook_properties = post_commithook_properties

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
        _check_clause(updates, predicate)
        self.spec.matched.append(Clause("update", predicate, self._readable(updates)))

    def when_matched_delete(self, predicate: str | None) -> None:
        check_texts(predicate)
        self.spec.matched.append(Clause("delete", predicate))

    def when_not_matched_insert(self, updates: Mapping[str, str], predicate: str | None) -> None:
        _check_clause(updates, predicate)
        self.spec.not_matched.append(Clause("insert", predicate, self._readable(updates)))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, str], predicate: str | None
    ) -> None:
        _check_clause(updates, predicate)
        self.spec.not_matched_by_source.append(Clause("update", predicate, dict(updates)))

    def when_not_matched_by_source_delete(self, predicate: str | None) -> None:
        check_texts(predicate)
        self.spec.not_matched_by_source.append(Clause("delete", predicate))

    def _readable(self, updates: Mapping[str, str]) -> dict[str, str]:
        """Escape backquotes in names: deltalake's `..._all` writes them as they are."""
        names = [field.name for field in self.arrow_schema if "`" in field.name]
        if not names:
            return dict(updates)
        spelled = {f"`{name}`": quoted(name) for name in names}

        def escaped(text: str) -> str:
            relation, dot, name = text.partition(".`")
            if dot and f"`{name}" in spelled:
                return f"{relation}.{spelled[f'`{name}']}"
            return spelled.get(text, text)

        return {escaped(name): escaped(value) for name, value in updates.items()}


def _check_clause(updates: Mapping[str, str], predicate: str | None) -> None:
    check_mapping(updates)
    check_texts(predicate)


class DmlSide(RawBase):
    """The row-changing half of deltalake's RawDeltaTable."""

    def delete(
        self,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Delete rows; the metrics come as JSON."""
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
        """Set columns of rows; the metrics come as JSON."""
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
        """Begin a merge; the engine streams and spills by the settings of the catalog."""
        check_text_given(predicate)
        check_texts(source_alias, target_alias)
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
        """Run a merge; the metrics come as JSON."""

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
                partitions_behind(target)
            return metrics

        metrics = self._commit(
            operate, merge_builder.commit_properties, merge_builder.post_commithook_properties
        )
        return json.dumps(metrics)
