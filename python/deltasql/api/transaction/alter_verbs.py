"""ALTER TABLE inside of a transaction, next to writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import StructType
from deltasql.operations.alter import columns, features
from deltasql.operations.alter import properties as table_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.operations.table_stage import TableStage


class AlterVerbs:
    """The operations on the shape of a table; each stages its part of the commit."""

    if TYPE_CHECKING:

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> TableStage: ...

    def add_columns(self, table: str, fields: object) -> None:
        """Add columns: deltalake's fields, or a schema of any library."""
        columns.add_columns(self.target(table), _struct(fields))

    def drop_column_not_null(self, table: str, column: str) -> None:
        """Let a column have nulls."""
        columns.drop_column_not_null(self.target(table), column)

    def set_column_metadata(self, table: str, column: str, metadata: Mapping[str, str]) -> None:
        """Add entries to a column's metadata."""
        columns.set_column_metadata(self.target(table), column, metadata)

    def rename_column(self, table: str, column: str, new_name: str) -> None:
        """Give a column another name, by column mapping: no file is touched."""
        columns.rename_column(self.target(table), column, new_name)

    def drop_columns(self, table: str, names: str | Sequence[str]) -> None:
        """Take columns out of the schema, by column mapping: no file is touched."""
        columns.drop_columns(self.target(table), [names] if isinstance(names, str) else names)

    def add_constraint(
        self, table: str, checks: Mapping[str, str], *, engine: str | None = None
    ) -> None:
        """Add CHECK constraints, by name; the rows that are there must meet them."""
        from deltasql.operations.alter import constraints  # late: it parses SQL

        constraints.add_constraints(self.target(table, engine=engine), checks)

    def drop_constraint(self, table: str, name: str, *, raise_if_not_exists: bool = True) -> None:
        """Take a CHECK constraint away."""
        from deltasql.operations.alter import constraints  # late: it parses SQL

        constraints.drop_constraint(
            self.target(table), name, raise_if_not_exists=raise_if_not_exists
        )

    def add_feature(
        self,
        table: str,
        names: str | Sequence[str],
        *,
        allow_protocol_versions_increase: bool = False,
    ) -> None:
        """Add table features by their names in Delta's protocol."""
        features.add_feature(
            self.target(table),
            [names] if isinstance(names, str) else names,
            allow_protocol_versions_increase=allow_protocol_versions_increase,
        )

    def set_table_properties(
        self, table: str, properties: Mapping[str, str], *, raise_if_not_exists: bool = True
    ) -> None:
        """Set table properties."""
        table_properties.set_table_properties(
            self.target(table), properties, raise_if_not_exists=raise_if_not_exists
        )

    def set_table_name(self, table: str, name: str) -> None:
        """Set the name that the metadata tells; `catalog.rename` changes the catalog's."""
        table_properties.set_table_name(self.target(table), name)

    def set_table_description(self, table: str, description: str) -> None:
        """Set the description that the metadata tells."""
        table_properties.set_table_description(self.target(table), description)


def _struct(fields: object) -> StructType:
    """Return columns as a struct: a schema, or a list of deltalake's fields."""
    if not isinstance(fields, list | tuple):
        return schema_from_any(fields)
    texts = [schema_from_any(_one(each)) for each in fields]
    return StructType(tuple(member for struct in texts for member in struct.fields))


def _one(field: object) -> object:
    # deltalake's Field says its JSON, and nothing else here does.
    text = getattr(field, "to_json", None)
    return f'{{"type":"struct","fields":[{text()}]}}' if callable(text) else field
