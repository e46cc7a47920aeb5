"""MergeBuilder: collects the clauses of a merge for deltalake's TableMerger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.api.deltalake_compat.handle.arguments import check_mapping, check_texts
from deltasql.api.transaction.merger import quoted
from deltasql.operations.merge.plan import Clause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties

    from deltasql.operations.merge.plan import MergeSpec


class MergeBuilder:
    """The clauses of a merge; has the methods of deltalake's PyMergeBuilder."""

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
        """Escape backquotes in names: deltalake's `..._all` methods do not escape them."""
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
