"""What `DeltaTable.alter` offers beyond deltalake's own: columns are renamed and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deltalake.table import TableAlterer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.deltalake_compat.handle.alter import AlterSide


class Alterer(TableAlterer):
    """ALTER TABLE: deltalake's methods, and those that column mapping makes possible."""

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Give a column, or a member of a struct (`a.b`), another name; no file is touched."""
        self._raw.rename_column(column, new_name, commit_properties, post_commithook_properties)

    def drop_column(
        self,
        columns: str | Sequence[str],
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Take columns, or members of structs, out of the schema; no file is touched."""
        names = [columns] if isinstance(columns, str) else list(columns)
        self._raw.drop_columns(names, commit_properties, post_commithook_properties)

    @property
    def _raw(self) -> AlterSide:
        return cast("AlterSide", self.table._table)
