"""Convert schemas of other libraries to Delta schemas and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake

from deltasql.deltalake_internals import nanoseconds_enabled
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.schema import DataType, StructField, StructType, with_elements

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

HAS_VARIANTS = {"deltasql.variants": "true"}
"""Metadata of an Arrow schema in which structs of `metadata` and `value` are variants."""
_TAKEN = "a pyarrow, deltalake, Spark or Delta JSON schema, or an object with __arrow_c_schema__"
_VARIANT = {"metadata": "binary", "value": "binary"}
# The metadata key for the declared type of a string column, as in Spark.
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


def schema_from_any(schema: object) -> StructType:
    """Return the Delta schema of a pyarrow, deltalake or Spark schema, or of a `schemaString`.

    >>> import pyarrow as pa
    >>> schema_from_any(pa.schema([("at", pa.timestamp("ns", "Europe/Paris"))])).fields[0].type
    'timestamp'
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return StructType.from_json(schema)
    if isinstance(schema, deltalake.Schema):
        return StructType.from_json(schema.to_json())
    if hasattr(schema, "__arrow_c_schema__"):
        return _from_arrow(schema)
    spark_json = getattr(schema, "json", None)
    if callable(spark_json) and hasattr(schema, "jsonValue"):
        return schema_from_spark(spark_json())
    raise TxnLogSchemaError(
        f"cannot convert {type(schema).__name__} to a Delta schema", help=f"Give {_TAKEN}."
    )


def schema_from_spark(text: str) -> StructType:
    """Return the Delta schema of a Spark schema in JSON; char and varchar become string."""
    return _from_spark(StructType.from_json(text))


def schema_to_arrow(schema: StructType) -> pa.Schema:
    """Return the pyarrow schema of data with this Delta schema.

    >>> schema_to_arrow(StructType((StructField("id", "long"),))).field("id").type
    DataType(int64)
    """
    # Import pyarrow late: the import takes 0.1 s, and a commit does not need pyarrow.
    import pyarrow as pa

    delta: Any = deltalake.Schema.from_json(schema.to_json())
    return pa.schema(delta)


def _from_arrow(schema: Any) -> StructType:
    import pyarrow as pa

    arrow = pa.schema(schema)
    if any("\0" in name for name in getattr(schema, "names", arrow.names)):
        raise TxnLogSchemaError(
            "a column name contains a NUL character, at which Arrow would truncate the name",
            help="Rename the column before writing.",
        )
    plain = pa.schema([f.with_type(_delta_type(f.type)) for f in arrow])
    try:
        converted = deltalake.Schema.from_arrow(plain)
    except Exception as error:  # deltalake raises a plain Exception for an unknown type
        before, mark, reason = str(error).partition("\n")[0].rpartition("error: ")
        raise TxnLogSchemaError(
            reason,
            prefix=before + mark,
            help="Cast the column to a type that Delta has before writing.",
        ) from error
    found = StructType.from_json(converted.to_json())
    marks = arrow.metadata or {}
    if all(marks.get(key.encode()) == value.encode() for key, value in HAS_VARIANTS.items()):
        return StructType(tuple(map(_with_variants, found.fields)))
    return found


def _with_variants(member: StructField) -> StructField:
    return replace(member, type=_variant(member.type))


def _variant(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        if {each.name: each.type for each in data_type.fields} == _VARIANT:
            return "variant"
        return StructType(tuple(map(_with_variants, data_type.fields)))
    return with_elements(data_type, _variant)


def _delta_type(arrow_type: Any) -> Any:
    # In Delta, timestamps with a time zone are in UTC, with microseconds, or with nanoseconds if
    # they are enabled. Data is cast when it is written.
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType) and _changes_in_delta(arrow_type.storage_type):
        return _delta_type(arrow_type.storage_type)
    if types.is_timestamp(arrow_type):
        unit = "ns" if arrow_type.unit == "ns" and nanoseconds_enabled() else "us"
        return pa.timestamp(unit, None if arrow_type.tz is None else "UTC")
    if types.is_struct(arrow_type):
        return pa.struct([f.with_type(_delta_type(f.type)) for f in arrow_type.fields])
    if types.is_map(arrow_type):
        key, item = arrow_type.key_field, arrow_type.item_field
        return pa.map_(key.with_type(_delta_type(key.type)), item.with_type(_delta_type(item.type)))
    if (
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    ):
        element = arrow_type.value_field
        return pa.list_(element.with_type(_delta_type(element.type)))
    if types.is_dictionary(arrow_type):
        return _delta_type(arrow_type.value_type)
    return arrow_type


def _changes_in_delta(storage: Any) -> bool:
    """Return whether Delta lacks the storage type of an extension type, such as that of UUID.

    The table then has another type, with which the data cannot be read back as the extension type.
    """
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_binary(storage) or pa.types.is_fixed_size_list(storage))


def _from_spark(schema: StructType) -> StructType:
    fields = []
    for member in schema.fields:
        metadata: Mapping[str, Any] = member.metadata
        if _is_limited_string(member.type):
            metadata = {**metadata, _CHAR_VARCHAR: member.type}
        fields.append(
            StructField(member.name, _without_limits(member.type), member.nullable, metadata)
        )
    return StructType(tuple(fields))


def _without_limits(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return _from_spark(data_type)
    if isinstance(data_type, str):
        return "string" if _is_limited_string(data_type) else data_type
    return with_elements(data_type, _without_limits)


def _is_limited_string(data_type: DataType) -> bool:
    return isinstance(data_type, str) and data_type.startswith(("char(", "varchar("))
