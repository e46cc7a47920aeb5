"""Convert schemas, column names and file paths to the form that Spark uses."""

from __future__ import annotations

import json
import re
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

_NAME_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def spark_schema(
    schema: StructType, column_mapping_mode: str | None = None, *, required: bool = False
) -> Any:
    """Return a schema as a Spark `StructType`, with physical names if a mapping mode is given.

    With `required`, NOT NULL columns are marked as not nullable; otherwise all are nullable.
    """
    reject_nanoseconds(schema)
    plain = [plain_field(field, column_mapping_mode) for field in schema.fields]
    try:
        found = _parsed(*plain)
    except ValueError as error:  # pyspark raises subclasses of it
        for one, field in zip(plain, schema.fields, strict=True):
            _check_known(one, field.name)
        raise TxnLogSchemaError(f"Spark does not accept the schema: {error}") from error
    for spark_field, field in zip(found.fields, schema.fields, strict=True):
        spark_field.nullable = field.nullable or not required
    return found


def _check_known(field: StructField, name: str) -> None:
    """Raise for a column whose type Spark does not support."""
    try:
        _parsed(field)
    except ValueError as error:
        raise UnsupportedFeatureError(
            f"column {name!r}: Spark does not support its type: {error}",
            features=(field.type if isinstance(field.type, str) else type_name(field.type),),
            help="Read this table with another engine, or exclude it with tables=[…].",
        ) from error


def _parsed(*fields: StructField) -> Any:
    from pyspark.sql.types import StructType as SparkStruct

    return SparkStruct.fromJson(json.loads(StructType(fields).to_json()))


def exact_type(data_type: DataType) -> Any:
    """Return a type as Spark's `DataType`, including the metadata of struct members."""
    field = StructField("x", data_type)
    reject_nanoseconds(StructType((field,)))
    return _parsed(field).fields[0].dataType


def reject_nanoseconds(schema: StructType) -> None:
    """Raise for timestamps with nanoseconds, which Spark would truncate."""
    for field in schema.fields:
        if has_nanoseconds(field.type):
            raise UnsupportedFeatureError(
                f"column {field.name!r} has timestamps with nanoseconds, which Spark lacks",
                features=("timestampNanos",),
                help="Read and write this table with DuckDB: engine='duckdb'.",
            )


def spark_type(data_type: DataType) -> Any:
    """Return a type as Spark's `DataType`."""
    return spark_schema(StructType((StructField("x", data_type),))).fields[0].dataType


def spark_path(spark: SparkSession, address: str) -> str:
    """Return a path or URL with the URL scheme that Spark uses."""
    return spark_paths(spark, [address])[0]


def spark_paths(spark: SparkSession, addresses: Sequence[str]) -> list[str]:
    """Return paths or URLs with the URL schemes that Spark uses."""
    s3 = "s3"
    if any(address.startswith("s3://") for address in addresses):
        # Use s3a, the scheme of Hadoop's own S3 client, if the session has no client for s3.
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


def name_parts(name: str) -> list[str]:
    """Split a name, written as in Spark SQL, into its parts without quotes.

    >>> name_parts("crm.sales"), name_parts("`a.b`.`c``d`")
    (['crm', 'sales'], ['a.b', 'c`d'])
    """
    return [inner.replace("``", "`") or plain for inner, plain in _NAME_PART.findall(name)]


def plain_field(field: StructField, mode: str | None) -> StructField:
    """Return the field as data files have it: nullable, and without the metadata of the log."""
    kind = with_members(field.type, lambda member: plain_field(member, mode))
    return StructField(field.physical_name(mode), kind)
