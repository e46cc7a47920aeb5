"""Validate schemas of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.model.schema.schema import (
    PRIMITIVE_TYPES,
    ArrayType,
    DataType,
    MapType,
    StructType,
    is_primitive,
    nearest,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def validate_schema(schema: StructType, partition_columns: Sequence[str] = ()) -> None:
    """Raise TxnLogSchemaError if Delta cannot store the schema or its partitioning."""
    _check_struct(schema, ())
    known = {f.name: f for f in schema.fields}
    for name in partition_columns:
        column = known.get(name)
        if column is None:
            raise TxnLogSchemaError(
                f"Partition column {name!r} not found in schema",
                column=name,
                prefix=KERNEL_ERROR,
                help=f"{nearest(name, schema.names)}partition_by takes names of columns.",
            )
        if not isinstance(column.type, str) or column.type in ("variant", "void"):
            raise TxnLogSchemaError(
                f"cannot partition by {name!r}: its type is {type_name(column.type)}",
                column=name,
                help="Partition by columns of a primitive type.",
            )
    repeated = _first_duplicate(partition_columns)
    if repeated is not None:
        raise TxnLogSchemaError(
            f"Duplicate partition column: {repeated!r}",
            column=repeated,
            prefix=KERNEL_ERROR,
            help="Name every partition column once.",
        )
    if partition_columns and len(partition_columns) == len(schema.fields):
        raise TxnLogSchemaError(
            "every column is a partition column, so the data files would have no columns",
            help="Leave at least one column out of partition_by.",
        )


def _check_struct(struct: StructType, path: tuple[str, ...]) -> None:
    where = ".".join(path)
    if not struct.fields:
        raise TxnLogSchemaError(
            f"struct {where!r} has no fields" if path else "the schema has no columns",
            column=where or None,
            help="Parquet cannot store an empty struct: give it a field or leave it out.",
        )
    repeated = _first_duplicate(struct.names)
    if repeated is not None:
        raise TxnLogSchemaError(
            f"Duplicate field name (case-insensitive): '{'.'.join((*path, repeated))}'",
            column=".".join((*path, repeated)),
            help="Delta compares column names without regard to case: rename one of them.",
        )
    for member in struct.fields:
        here = (*path, member.name)
        _check_type(member.type, here)


def _check_type(data_type: DataType, path: tuple[str, ...]) -> None:
    if isinstance(data_type, StructType):
        _check_struct(data_type, path)
    elif isinstance(data_type, ArrayType):
        _check_type(data_type.element_type, (*path, "element"))
    elif isinstance(data_type, MapType):
        _check_type(data_type.key_type, (*path, "key"))
        _check_type(data_type.value_type, (*path, "value"))
    elif data_type != "void" and not is_primitive(data_type):
        raise TxnLogSchemaError(
            f"column {'.'.join(path)!r} has type {data_type!r}, which Delta does not have",
            column=".".join(path),
            help=f"Cast it to one of: {', '.join(sorted(PRIMITIVE_TYPES))}, decimal(p,s).",
        )


def _first_duplicate(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
