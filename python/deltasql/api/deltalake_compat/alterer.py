"""`DeltaTable.alter` with two methods that deltalake does not have: rename and drop columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deltalake.table import TableAlterer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.deltalake_compat.handle.alter import AlterSide


class Alterer(TableAlterer):
    """deltalake's ALTER TABLE methods, and renaming and dropping columns by column mapping."""

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Rename a column or a field of a struct (`a.b`), without rewriting data files."""
        self._raw.rename_column(column, new_name, commit_properties, post_commithook_properties)

    def drop_column(
        self,
        columns: str | Sequence[str],
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop columns or fields of structs from the schema, without rewriting data files."""
        names = [columns] if isinstance(columns, str) else list(columns)
        self._raw.drop_columns(names, commit_properties, post_commithook_properties)

    @property
    def _raw(self) -> AlterSide:
        return cast("AlterSide", self.table._table)
