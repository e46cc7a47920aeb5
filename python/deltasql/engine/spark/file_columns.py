"""Convert rows to the columns and partition folders that Spark writes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

from deltasql.engine.base import CHANGE_TYPE
from deltasql.engine.parquet.partitions import partition_text
from deltasql.engine.spark.schema import exact_type, quoted, spark_type
from deltasql.engine.spark.void import without_void_columns
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping_mode,
    has_void,
    with_members,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from deltasql.engine.base import WritePlan

_FIELD_ID = "delta.columnMapping.id"
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ENCODED = "~~"
_SAFE = "^[A-Za-z0-9_.~:/%=-]+$"


def stored_frame(frame: DataFrame, plan: WritePlan, sort_keys: Sequence[str] = ()) -> DataFrame:
    """Return rows as files store them: physical names and field ids, partition values as strings.

    `sort_keys` are additional columns to keep; the caller sorts by them and then drops them.
    """
    from pyspark.sql import functions as F

    mode = column_mapping_mode(plan.configuration)
    schema = plan.schema
    if plan.folder and schema.find(CHANGE_TYPE) is None:
        schema = StructType((*schema.fields, StructField(CHANGE_TYPE, "string")))
    given = schema_from_any(frame.schema)
    if any(has_void(field.type) for field in schema.fields):
        for field in schema.fields:
            known = given.find(field.name)
            if known is not None:
                _check_members(known.type, field.type, field.name)
        schema, frame = without_void_columns(frame, schema, plan.partition_columns)
        given = schema_from_any(frame.schema)
    if not (mode or plan.partition_columns or sort_keys) and _is_stored_form(given, schema):
        return frame
    columns = []
    for field in schema.fields:
        found = given.find(field.name)
        if found is None:
            raise TxnLogSchemaError(
                f"the data has no column {field.name!r}",
                column=field.name,
                help="Give the data all columns of the table.",
            )
        column = F.col(quoted(found.name))
        name = field.physical_name(mode)
        if field.name in plan.partition_columns:
            columns.append(_folder_text(column, field.type).alias(name))
            continue
        _check_members(found.type, field.type, field.name)
        stored = stored_field(field, mode)
        if stored.type != stored_field(found, None).type:
            column = column.cast(exact_type(stored.type))
        columns.append(column.alias(name, metadata=dict(stored.metadata)))
    return frame.select([*columns, *sort_keys])


def partition_of(folders: list[str], plan: WritePlan) -> dict[str, str | None]:
    """Return the partition values that Spark's folder names encode, as strings for the log."""
    mode = column_mapping_mode(plan.configuration)
    values = {}
    for folder, name in zip(folders, plan.partition_columns, strict=True):
        field = plan.schema.find(name)
        assert field is not None
        text: str | None = unquote(folder.partition("=")[2])
        if text == _NULL_FOLDER:
            text = None
        elif text is not None and text.startswith(_ENCODED):
            text = unquote_plus(text.removeprefix(_ENCODED))
        values[field.physical_name(mode)] = partition_text(parse_partition_value(text, field.type))
    return values


def has_encoded_value(folder: str) -> bool:
    """Return whether a folder name contains a value that `stored_frame` encoded.

    Such a folder must be renamed.
    """
    return f"={_ENCODED}" in folder


def _folder_text(column: Column, data_type: DataType) -> Column:
    """Return a partition value as a string for the folder name.

    The string does not depend on the session or the file system. Spark does not escape non-ASCII
    characters in folder names, and a JVM without a locale replaces them by question marks. Values
    with such characters are encoded here, and their folders are renamed after the write.
    """
    from pyspark.sql import functions as F

    text = column.cast("string")
    if data_type == "binary":
        text = F.validate_utf8(text)
    elif data_type == "timestamp":
        text = F.concat(F.replace(_utc(column).cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
    elif data_type == "timestamp_ntz":
        text = F.replace(text, F.lit(" "), F.lit("T"))
    is_safe = text.rlike(_SAFE) & ~text.startswith(_ENCODED) & (text != _NULL_FOLDER)
    return (
        F.when(text == "", F.lit(None).cast("string"))
        .when(is_safe, text)
        .otherwise(F.concat(F.lit(_ENCODED), F.url_encode(text)))
    )


def _utc(timestamp: Column) -> Column:
    """Convert a timestamp to UTC without a zone; a cast would use the session's time zone."""
    from pyspark.sql import functions as F

    seconds = F.unix_micros(timestamp).cast("decimal(20,0)") * F.lit("0.000001").cast(
        "decimal(7,6)"
    )
    zero = F.lit(0)
    epoch = F.lit("1970-01-01T00:00:00").cast(spark_type("timestamp_ntz"))
    return epoch + F.make_dt_interval(zero, zero, zero, seconds.cast("decimal(18,6)"))


def _is_stored_form(given: StructType, wanted: StructType) -> bool:
    """Return whether rows already have exactly the columns that files store."""
    plain = [stored_field(field, None) for field in wanted.fields]
    return not any(f.metadata for f in given.fields) and plain == [
        stored_field(field, None) for field in given.fields
    ]


def stored_field(field: StructField, mode: str | None) -> StructField:
    """Return a column as files store it: physical names, and field ids if columns are mapped."""
    number = field.metadata.get(_FIELD_ID) if mode else None
    metadata = {} if number is None else {"parquet.field.id": number}
    kind = with_members(field.type, lambda member: stored_field(member, mode))
    return StructField(field.physical_name(mode), kind, metadata=metadata)


def _check_members(given: DataType, wanted: DataType, path: str) -> None:
    """Raise if structs have different members; Spark would match members by position."""
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        if [name.casefold() for name in given.names] != [n.casefold() for n in wanted.names]:
            raise TxnLogSchemaError(
                f"the struct {path} has the fields {', '.join(given.names)} in the data, but "
                f"{', '.join(wanted.names)} in the table",
                column=path,
                help="Give the struct the same fields as in the table, in the same order.",
            )
        for here, there in zip(given.fields, wanted.fields, strict=True):
            _check_members(here.type, there.type, f"{path}.{there.name}")
    elif isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        _check_members(given.element_type, wanted.element_type, path)
    elif isinstance(given, MapType) and isinstance(wanted, MapType):
        _check_members(given.key_type, wanted.key_type, path)
        _check_members(given.value_type, wanted.value_type, path)
