"""Void columns on Spark: rows have void columns, but files do not store them.

Files of deltasql 0.1.0 store void columns as integers, which Spark cannot read as void. Therefore
void columns are never read; they are added to the rows as null literals.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from deltasql.engine.spark.schema import quoted
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    has_void,
    without_void,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame


def stored_columns(schema: StructType, partitions: Collection[str]) -> StructType:
    """Return the columns to read from files: all except partition columns and void columns.

    A void type inside an array or a map, or of a struct's only field, is replaced by integer.
    """
    kept = without_void(schema, tuple(partitions)).fields
    return StructType(
        tuple(
            StructField(field.name, _with_integers(field.type), field.nullable, field.metadata)
            for field in kept
            if field.name not in partitions and field.type != "void"
        )
    )


def with_void(column: Column, data_type: DataType, mode: str | None) -> Column:
    """Return a column from a file with void members added and with logical names."""
    from pyspark.sql import functions as F

    if data_type == "void":
        return F.lit(None)
    if isinstance(data_type, StructType):
        members = [
            (
                F.lit(None)
                if member.type == "void"
                else with_void(column.getField(member.physical_name(mode)), member.type, mode)
            ).alias(member.name)
            for member in data_type.fields
        ]
        return F.when(column.isNotNull(), F.struct(*members))
    if isinstance(data_type, ArrayType):
        element = data_type.element_type
        return F.transform(column, lambda each: with_void(each, element, mode))
    if isinstance(data_type, MapType):
        value = data_type.value_type
        return F.transform_values(column, lambda _, each: with_void(each, value, mode))
    return column


def without_void_columns(
    frame: DataFrame, schema: StructType, partitions: Sequence[str]
) -> tuple[StructType, DataFrame]:
    """Return the columns that files store, and the rows with only these columns.

    The query fails if a void column has a value other than null.
    """
    from pyspark.sql import functions as F

    kept = without_void(schema, partitions)
    for left in kept.fields:
        if has_void(left.type) and left.name not in partitions:
            # Spark would write booleans here, which other readers do not accept as void.
            raise UnsupportedFeatureError(
                f"column {left.name!r} has the type void in an array or a map, or it is the only "
                "column of its table or struct",
                features=("void",),
                help="Spark cannot store such a column. Use engine='duckdb', or give the column "
                "another type.",
            )
    changed = {
        field.name.casefold(): field
        for field in schema.fields
        if has_void(field.type) and field.name not in partitions
    }
    columns, values = [], []
    for name in frame.columns:
        column, field = F.col(quoted(name)), changed.get(name.casefold())
        if field is None:
            columns.append(column)
            continue
        message = f"column {field.name!r} has a value where it is void, which can only be null"
        values.append(F.when(_has_value(column, field.type), F.raise_error(F.lit(message))))
        if field.name in kept.names:
            columns.append(_without_void(column, field.type).alias(name))
    # These filters remove no rows: evaluating them calls `raise_error` for invalid rows.
    checked = reduce(lambda rows, value: rows.where(value.isNull()), values, frame)
    return kept, checked.select(columns)


def _without_void(column: Column, data_type: DataType) -> Column:
    from pyspark.sql import functions as F

    if isinstance(data_type, StructType):
        kept = without_void(data_type).names
        members = [
            _without_void(column.getField(member.name), member.type).alias(member.name)
            for member in data_type.fields
            if member.name in kept
        ]
        return F.when(column.isNotNull(), F.struct(*members))
    if isinstance(data_type, ArrayType):
        element = data_type.element_type
        return F.transform(column, lambda each: _without_void(each, element))
    if isinstance(data_type, MapType):
        value = data_type.value_type
        return F.transform_values(column, lambda _, each: _without_void(each, value))
    return column


def _has_value(column: Column, data_type: DataType) -> Column:
    """Return a condition that is true for rows with a value where the type is void."""
    from pyspark.sql import functions as F

    if isinstance(data_type, StructType):
        found = [
            _has_value(column.getField(member.name), member.type)
            for member in data_type.fields
            if has_void(member.type)
        ]
        return reduce(lambda one, other: one | other, found)
    if isinstance(data_type, ArrayType):
        element = data_type.element_type
        return F.exists(column, lambda each: _has_value(each, element))
    if isinstance(data_type, MapType):
        value = data_type.value_type
        return F.exists(F.map_values(column), lambda each: _has_value(each, value))
    return column.isNotNull()


def _with_integers(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(
            tuple(
                StructField(f.name, _with_integers(f.type), f.nullable, f.metadata)
                for f in data_type.fields
            )
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(_with_integers(data_type.element_type))
    if isinstance(data_type, MapType):
        return MapType(data_type.key_type, _with_integers(data_type.value_type))
    return "integer" if data_type == "void" else data_type
