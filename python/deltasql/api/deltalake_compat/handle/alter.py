"""ALTER TABLE: the methods of the raw table that deltalake's TableAlterer calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.deltalake_compat.handle.arguments import (
    check_features,
    check_fields,
    check_flags,
    check_mapping,
    check_options,
    check_text_given,
)
from deltasql.api.deltalake_compat.handle.base import RawBase
from deltasql.operations.alter.features import FEATURE_NAMES, refuse_higher_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, Field, PostCommitHookProperties, TableFeatures


class AlterSide(RawBase):
    """ALTER TABLE, with the positional signatures of deltalake's raw table."""

    def add_columns(
        self,
        fields: Sequence[Field],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add columns."""
        check_fields(fields)
        self._commit(
            lambda tx: tx.add_columns(self.name, fields),
            commit_properties,
            post_commithook_properties,
        )

    def add_feature(
        self,
        feature: Sequence[TableFeatures],
        allow_protocol_versions_increase: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add table features."""
        if isinstance(feature, str):
            raise TypeError("Can't extract `str` to `Vec`")
        check_features(feature)
        check_flags(allow_protocol_versions_increase)
        names = [FEATURE_NAMES[str(each).rpartition(".")[2]] for each in feature]
        if names and not allow_protocol_versions_increase:
            refuse_higher_versions(self.reported_protocol(), names)
        self._commit(
            lambda tx: tx.add_feature(
                self.name,
                names,
                allow_protocol_versions_increase=allow_protocol_versions_increase,
            ),
            commit_properties,
            post_commithook_properties,
        )

    def add_constraints(
        self,
        constraints: Mapping[str, str],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add CHECK constraints by name; the existing rows must meet them."""
        check_mapping(constraints)
        self._commit(
            lambda tx: tx.add_constraint(self.name, constraints),
            commit_properties,
            post_commithook_properties,
        )

    def drop_constraints(
        self,
        name: str,
        raise_if_not_exists: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop a CHECK constraint."""
        check_text_given(name)
        check_flags(raise_if_not_exists)
        self._commit(
            lambda tx: tx.drop_constraint(self.name, name, raise_if_not_exists=raise_if_not_exists),
            commit_properties,
            post_commithook_properties,
        )

    def drop_column_not_null(
        self,
        column_name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Remove the NOT NULL constraint of a column."""
        self._commit(
            lambda tx: tx.drop_column_not_null(self.name, column_name),
            commit_properties,
            post_commithook_properties,
        )

    def set_table_properties(
        self,
        properties: Mapping[str, str],
        raise_if_not_exists: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set table properties."""
        check_options(properties)
        check_flags(raise_if_not_exists)
        self._commit(
            lambda tx: tx.set_table_properties(
                self.name, properties, raise_if_not_exists=raise_if_not_exists
            ),
            commit_properties,
            post_commithook_properties,
        )

    def set_table_name(
        self,
        name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the name in the metadata."""
        check_text_given(name)
        self._commit(
            lambda tx: tx.set_table_name(self.name, name),
            commit_properties,
            post_commithook_properties,
        )

    def set_table_description(
        self,
        description: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the description in the metadata."""
        check_text_given(description)
        self._commit(
            lambda tx: tx.set_table_description(self.name, description),
            commit_properties,
            post_commithook_properties,
        )

    def set_column_metadata(
        self,
        column: str,
        metadata: Mapping[str, str],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add entries to a column's metadata."""
        check_text_given(column)
        check_mapping(metadata)
        self._commit(
            lambda tx: tx.set_column_metadata(self.name, column, metadata),
            commit_properties,
            post_commithook_properties,
        )

    def rename_column(
        self,
        column: str,
        new_name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Rename a column by column mapping; deltalake does not have this method."""
        self._commit(
            lambda tx: tx.rename_column(self.name, column, new_name),
            commit_properties,
            post_commithook_properties,
        )

    def drop_columns(
        self,
        columns: Sequence[str],
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop columns by column mapping; deltalake does not have this method."""
        self._commit(
            lambda tx: tx.drop_columns(self.name, columns),
            commit_properties,
            post_commithook_properties,
        )
