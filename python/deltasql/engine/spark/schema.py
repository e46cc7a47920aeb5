"""Schemas, names and addresses as Spark has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.schema.schema import (
    DataType,
    StructField,
    StructType,
    has_nanoseconds,
    type_name,
    with_members,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


def spark_schema(
    schema: StructType, column_mapping_mode: str | None = None, *, required: bool = False
) -> Any:
    """Return a schema as Spark has it; with a mapping mode, under its physical names.

    With `required`, columns that may not be null are told to Spark as such.
    """
    refuse_nanoseconds(schema)
    plain = [_plain_field(f, column_mapping_mode) for f in schema.fields]
    try:
        found = _parsed(*plain)
    except ValueError as error:  # pyspark's own kind of it
        for spark_field, field in zip(plain, schema.fields, strict=True):
            _check_known(spark_field, field.name)
        raise TxnLogSchemaError(f"Spark does not take the schema: {error}") from error
    for told, field in zip(found.fields, schema.fields, strict=True):
        told.nullable = field.nullable or not required
    return found


def _check_known(field: StructField, name: str) -> None:
    """Refuse a column whose type Spark does not know."""
    try:
        _parsed(field)
    except ValueError as error:
        raise UnsupportedFeatureError(
            f"column {name!r}: Spark does not know its type: {error}",
            features=(field.type if isinstance(field.type, str) else type_name(field.type),),
            help="Read this table with another engine, or leave it out by tables=[…].",
        ) from error


def _parsed(*fields: StructField) -> Any:
    from pyspark.sql.types import StructType as SparkStruct

    return SparkStruct.fromJson(json.loads(StructType(fields).to_json()))


def exact_type(data_type: DataType) -> Any:
    """Return a type as Spark has it, with the metadata of its members."""
    field = StructField("x", data_type)
    refuse_nanoseconds(StructType((field,)))
    return _parsed(field).fields[0].dataType


def refuse_nanoseconds(schema: StructType) -> None:
    """Refuse a schema that Spark could hold only with its timestamps cut."""
    for field in schema.fields:
        if has_nanoseconds(field.type):
            raise UnsupportedFeatureError(
                f"column {field.name!r} has timestamps with nanoseconds, which Spark does not have",
                features=("timestampNanos",),
                help="Read and write this table with DuckDB: engine='duckdb'.",
            )


def spark_type(data_type: DataType) -> Any:
    """Return a type as Spark has it."""
    return spark_schema(StructType((StructField("x", data_type),))).fields[0].dataType


def spark_path(spark: SparkSession, address: str) -> str:
    """Return an address with the scheme by which Spark finds it."""
    return spark_paths(spark, [address])[0]


def spark_paths(spark: SparkSession, addresses: Sequence[str]) -> list[str]:
    """Return addresses with the schemes by which Spark finds them; it is asked once at most."""
    s3 = "s3"
    if any(address.startswith("s3://") for address in addresses):
        # The name of Hadoop's own S3 client.
        s3 = "s3a" if spark.conf.get("spark.hadoop.fs.s3.impl", None) is None else "s3"
    return [
        f"file://{address}"
        if address.startswith("/")
        else f"{s3}{address.removeprefix('s3')}"
        if address.startswith("s3://")
        else address
        for address in addresses
    ]


def quoted(name: str) -> str:
    """Quote a name for Spark.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _plain_field(field: StructField, mode: str | None) -> StructField:
    """A field that any file can be read with: nullable, without the metadata of the log."""
    kind = with_members(field.type, lambda member: _plain_field(member, mode))
    return StructField(field.physical_name(mode), kind)
