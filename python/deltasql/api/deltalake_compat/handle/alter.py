"""ALTER TABLE: the methods of the raw table that deltalake's TableAlterer calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import Field, TableFeatures

from deltasql import deltalake_internals
from deltasql.api.arguments import (
    check_flags,
    check_mapping,
    check_options,
    check_sequence,
    check_text,
)
from deltasql.deltalake_internals import TableAlterer
from deltasql.operations.alter.features import FEATURE_NAMES, reject_higher_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable


class Alterer(TableAlterer):
    """deltalake's ALTER TABLE methods, and further methods that change columns or drop features."""

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Rename a column or a field of a struct (`a.b`), without rewriting data files."""
        table = self._open_table
        table.commit(
            lambda tx: tx.rename_column(table.name, column, new_name),
            commit_properties,
            post_commithook_properties,
        )

    def drop_column(
        self,
        columns: str | Sequence[str],
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop columns or fields of structs from the schema, without rewriting data files."""
        names = [columns] if isinstance(columns, str) else list(columns)
        table = self._open_table
        table.commit(
            lambda tx: tx.drop_columns(table.name, names),
            commit_properties,
            post_commithook_properties,
        )

    def set_column_default(
        self,
        column: str,
        default: str | None,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the default value of a column, an expression in Spark's SQL; None drops it."""
        table = self._open_table
        table.commit(
            lambda tx: tx.set_column_default(table.name, column, default),
            commit_properties,
            post_commithook_properties,
        )

    def set_column_type(
        self,
        column: str,
        data_type: object,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Change a column to a wider type, without rewriting data files.

        The table needs the property `delta.enableTypeWidening`. The type is SQL text such as
        `BIGINT`, or a type of deltalake.
        """
        table = self._open_table
        table.commit(
            lambda tx: tx.set_column_type(table.name, column, data_type),
            commit_properties,
            post_commithook_properties,
        )

    def set_column_not_null(
        self,
        column: str,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Make a column NOT NULL; the existing rows must not have nulls there."""
        table = self._open_table
        table.commit(
            lambda tx: tx.set_column_not_null(table.name, column),
            commit_properties,
            post_commithook_properties,
        )

    def drop_feature(
        self,
        name: str,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Remove a table feature that the table no longer uses, by its name in Delta's protocol."""
        table = self._open_table
        table.commit(
            lambda tx: tx.drop_feature(table.name, name),
            commit_properties,
            post_commithook_properties,
        )

    @property
    def _open_table(self) -> OpenTable:
        table: OpenTable = deltalake_internals.raw_table(self.table)
        return table


def add_columns(
    table: OpenTable,
    fields: Sequence[Field],
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Add columns."""
    check_sequence(fields, Field)
    table.commit(
        lambda tx: tx.add_columns(table.name, fields),
        commit_properties,
        post_commithook_properties,
    )


def add_feature(
    table: OpenTable,
    feature: Sequence[TableFeatures],
    allow_protocol_versions_increase: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Add table features."""
    check_sequence(feature, TableFeatures)
    check_flags(allow_protocol_versions_increase)
    names = [FEATURE_NAMES[str(each).rpartition(".")[2]] for each in feature]
    if names and not allow_protocol_versions_increase:
        reject_higher_versions(table.reported_protocol(), names)
    table.commit(
        lambda tx: tx.add_feature(
            table.name,
            names,
            allow_protocol_versions_increase=allow_protocol_versions_increase,
        ),
        commit_properties,
        post_commithook_properties,
    )


def add_constraints(
    table: OpenTable,
    constraints: Mapping[str, str],
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Add CHECK constraints by name; the existing rows must meet them."""
    check_mapping(constraints)
    table.commit(
        lambda tx: tx.add_constraint(table.name, constraints),
        commit_properties,
        post_commithook_properties,
    )


def drop_constraints(
    table: OpenTable,
    name: str,
    raise_if_not_exists: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Drop a CHECK constraint."""
    check_text(name)
    check_flags(raise_if_not_exists)
    table.commit(
        lambda tx: tx.drop_constraint(table.name, name, raise_if_not_exists=raise_if_not_exists),
        commit_properties,
        post_commithook_properties,
    )


def drop_column_not_null(
    table: OpenTable,
    column_name: str,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Remove the NOT NULL constraint of a column."""
    table.commit(
        lambda tx: tx.drop_column_not_null(table.name, column_name),
        commit_properties,
        post_commithook_properties,
    )


def set_table_properties(
    table: OpenTable,
    properties: Mapping[str, str],
    raise_if_not_exists: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Set table properties."""
    check_options(properties)
    check_flags(raise_if_not_exists)
    table.commit(
        lambda tx: tx.set_table_properties(
            table.name, properties, raise_if_not_exists=raise_if_not_exists
        ),
        commit_properties,
        post_commithook_properties,
    )


def set_table_name(
    table: OpenTable,
    name: str,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Set the name in the metadata."""
    check_text(name)
    table.commit(
        lambda tx: tx.set_table_name(table.name, name),
        commit_properties,
        post_commithook_properties,
    )


def set_table_description(
    table: OpenTable,
    description: str,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Set the description in the metadata."""
    check_text(description)
    table.commit(
        lambda tx: tx.set_table_description(table.name, description),
        commit_properties,
        post_commithook_properties,
    )


def set_column_metadata(
    table: OpenTable,
    column: str,
    metadata: Mapping[str, str],
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Add entries to a column's metadata."""
    check_text(column)
    check_mapping(metadata)
    table.commit(
        lambda tx: tx.set_column_metadata(table.name, column, metadata),
        commit_properties,
        post_commithook_properties,
    )
