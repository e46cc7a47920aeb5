"""The layout of a table's data files: Arrow types, physical names, columns with statistics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.base import CHANGE_TYPE
from deltasql.engine.parquet.arrow_casts import has_void, plain_layout, void_column
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping_mode,
    indexed_columns,
    without_void,
)

if TYPE_CHECKING:
    from deltasql.engine.base import WritePlan

Indexed: TypeAlias = "dict[str, Indexed | None]"
"""Physical names of columns with statistics; a struct maps to its members, a leaf to None."""

_FIELD_ID = "delta.columnMapping.id"
_CHANGE_FIELD = StructField(CHANGE_TYPE, "string")


@dataclass(frozen=True, slots=True)
class FileShape:
    """The layout of a table's data files."""

    table: pa.Schema
    """All columns except void ones, under logical names; nested fields are nullable."""
    stored: pa.Schema
    """The columns of a file under their physical names."""
    partition_columns: tuple[str, ...]
    partition_keys: tuple[str, ...]
    """The physical names of the partition columns."""
    indexed: Indexed
    required: tuple[pa.Field, ...]
    """Columns that are not nullable, or that have a field that is not nullable."""
    void: tuple[pa.Field, ...] = ()
    """Columns that are void or have a void field."""

    def conform(self, rows: pa.Table) -> pa.Table:
        """Cast rows to the columns and types of the table; raise if they do not fit."""
        schema, given = self.table, rows.schema
        if given.equals(schema, check_metadata=True):
            return self._checked(rows)
        rows = self._with_void(rows)
        names = rows.schema.names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise TxnLogSchemaError(
                f"the data has no column {missing[0]!r}",
                column=missing[0],
                help="Give the data all columns of the table.",
            )
        columns = [_as_type(rows.column(field.name), field) for field in schema]
        return self._checked(pa.Table.from_arrays(columns, schema=schema))

    def _with_void(self, rows: pa.Table) -> pa.Table:
        """Cast void columns, which engines return as integers, to Arrow's null type."""
        for field in self.void:
            index = rows.schema.get_field_index(field.name)
            if index >= 0:
                column = _voided(rows.column(index), field)
                if _has_required(field):
                    _check_nulls(column, field)
                rows = rows.set_column(index, field.name, column)
        return rows

    def _checked(self, rows: pa.Table) -> pa.Table:
        for field in self.required:
            _check_nulls(rows.column(field.name), field)
        return rows

    def store(self, rows: pa.Table) -> pa.Table:
        """Convert rows, without partition columns, to the schema of the file."""
        columns = [
            column if column.type.equals(field.type) else _viewed(column, field.type)
            for column, field in zip(rows.columns, self.stored, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.stored)


def file_shape(plan: WritePlan) -> FileShape:
    """Return the layout of the files that a plan writes."""
    configuration = tuple(
        (key, value)
        for key, value in plan.configuration.items()
        if key.startswith(("delta.columnMapping.mode", "delta.dataSkipping"))
    )
    schema = plan.schema
    if plan.folder and schema.find(CHANGE_TYPE) is None:
        schema = StructType((*schema.fields, _CHANGE_FIELD))
    return _shape(schema, plan.partition_columns, configuration)


@lru_cache(maxsize=256)
def _shape(
    schema: StructType, partitions: tuple[str, ...], configuration: tuple[tuple[str, str], ...]
) -> FileShape:
    properties = dict(configuration)
    mode = column_mapping_mode(properties)
    kept = without_void(schema, partitions)
    exact = schema_to_arrow(kept)
    stored = [
        _stored_field(arrow, field, mode)
        for arrow, field in zip(exact, kept.fields, strict=True)
        if field.name not in partitions
    ]
    keys = [schema.find(name) for name in partitions]
    return FileShape(
        table=pa.schema([pa.field(f.name, _loose(f.type), f.nullable) for f in exact]),
        stored=pa.schema(stored),
        partition_columns=partitions,
        partition_keys=tuple(key.physical_name(mode) for key in keys if key is not None),
        indexed=_indexed(schema, partitions, properties),
        required=tuple(filter(_has_required, exact)),
        void=tuple(
            pa.field(field.name, _loose(field.type), field.nullable)
            for field in schema_to_arrow(schema)
            if has_void(field.type)
        ),
    )


def _stored_field(arrow: pa.Field, field: StructField, mode: str | None) -> pa.Field:
    number = field.metadata.get(_FIELD_ID) if mode else None
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    kind = _stored_type(arrow.type, field.type, mode)
    return pa.field(field.physical_name(mode), kind, arrow.nullable, metadata)


def _stored_type(arrow: pa.DataType, data_type: DataType, mode: str | None) -> pa.DataType:
    if isinstance(data_type, StructType):
        members = zip(arrow, data_type.fields, strict=True)
        return pa.struct([_stored_field(kind, member, mode) for kind, member in members])
    if isinstance(data_type, ArrayType):
        element = arrow.value_field
        return pa.list_(element.with_type(_stored_type(element.type, data_type.element_type, mode)))
    if isinstance(data_type, MapType):
        key, item = arrow.key_field, arrow.item_field
        return pa.map_(
            key.with_type(_stored_type(key.type, data_type.key_type, mode)),
            item.with_type(_stored_type(item.type, data_type.value_type, mode)),
        )
    return arrow


def _loose(kind: pa.DataType) -> pa.DataType:
    """Return a type in which all fields are nullable.

    A cast to a field that is not nullable would fail before `_check_nulls` can name the field.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _loose(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _loose(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type), _loose(kind.item_type))
    return kind


def _indexed(
    schema: StructType, partitions: tuple[str, ...], configuration: dict[str, str]
) -> Indexed:
    found: Indexed = {}
    for leaf in indexed_columns(schema, partitions, configuration):
        here = found
        for name in leaf.physical_path[:-1]:
            below = here.setdefault(name, {})
            assert below is not None
            here = below
        if leaf.path != (CHANGE_TYPE,) and leaf.type != "void":
            here[leaf.physical_path[-1]] = None
    return found


def _as_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    # If the table has microseconds, truncate nanoseconds.
    options = pc.CastOptions(field.type, allow_time_truncate=True)
    try:
        return pc.cast(plain_layout(column), options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TxnLogSchemaError(
            f"the data does not fit the table's types: column {field.name!r}: {error}",
            column=field.name,
            help="Cast the data to the table's schema.",
        ) from error


def _voided(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return void_column(plain_layout(column), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = "is void" if pa.types.is_null(field.type) else "has a void field"
        raise TxnLogSchemaError(
            f"column {field.name!r} {what}, which can only be null, but the data has a value there",
            column=field.name,
            help="Write null there. To give the column a type, overwrite the table with "
            "schema_mode='overwrite'.",
        ) from error


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Rename the fields of a column without copying data."""
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _has_required(field: pa.Field) -> bool:
    kind = field.type
    return not field.nullable or (pa.types.is_struct(kind) and any(map(_has_required, kind)))


def _check_nulls(column: Any, field: pa.Field, path: str = "", outer: Any = None) -> None:
    """Raise for a null in a field that is not nullable, unless its struct is null too."""
    name = f"{path}{field.name}"
    if not field.nullable and column.null_count:
        wrong = column.is_null() if outer is None else pc.and_(column.is_null(), outer)
        if pc.any(wrong).as_py():
            raise TxnLogSchemaError(
                f"column {name!r} must not be null, but the data has nulls in it",
                column=name,
                help="Fill in the values, or leave these rows out.",
            )
    if pa.types.is_struct(field.type):
        for member, part in zip(field.type, column.flatten(), strict=True):
            if _has_required(member):
                _check_nulls(part, member, f"{name}.", column.is_valid())
