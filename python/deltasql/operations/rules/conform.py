"""Cast Arrow rows to the types and the order of a table's columns, as deltalake does."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.deltalake_internals import nanoseconds_enabled
from deltasql.engine.inputs import has_unit, nanosecond_columns
from deltasql.engine.parquet.arrow_casts import as_void, has_void
from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import ARROW_ERROR
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import StructType, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_NAMES = {
    "bool": "Boolean",
    "float": "Float32",
    "halffloat": "Float16",
    "double": "Float64",
    "string": "Utf8",
    "large_string": "LargeUtf8",
    "string_view": "Utf8View",
    "binary": "Binary",
    "large_binary": "LargeBinary",
    "binary_view": "BinaryView",
    "date32[day]": "Date32",
    "date64[ms]": "Date64",
    "null": "Null",
}


@lru_cache(maxsize=256)
def arrow_schema(schema_string: str) -> pa.Schema:
    """Return the Arrow schema of a table's rows. All fields are nullable; nulls are checked later.

    >>> arrow_schema('{"type":"struct","fields":[]}')
    <BLANKLINE>
    """
    plain = schema_to_arrow(StructType.from_json(schema_string))
    return pa.schema([pa.field(field.name, _all_nullable(field.type)) for field in plain])


def check_names(
    given: pa.Schema, wanted: pa.Schema, *, optional: Collection[str] = (), table: str
) -> None:
    """Raise if the rows do not have the columns of the table; `optional` columns may be missing."""
    missing = [name for name in wanted.names if name not in given.names and name not in optional]
    _check_members(given, wanted, missing, optional, table)
    for field in given:
        _check_nested(field, wanted.field(field.name).type, table, field.name)


def check_types(given: StructType, wanted: StructType) -> None:
    """Raise for columns without a Delta type, and for casts between nested and other types.

    An engine would cast a nested value to a string without an error.
    """
    validate_schema(given)
    for field in given.fields:
        known = wanted.find(field.name)
        if known is None or "void" in (field.type, known.type):
            continue
        if type(field.type) is not type(known.type):  # for example a struct and a string
            raise TxnLogSchemaError(
                f"Cannot cast field {field.name} from {type_name(field.type)} "
                f"to {type_name(known.type)}",
                column=field.name,
                help="Cast the data to the table's type before writing.",
            )


def conformer(
    given: pa.Schema, wanted: pa.Schema, constants: Mapping[str, pa.Scalar] | None = None
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that casts batches to the wanted schema.

    Missing columns have the values of `constants`, and are null otherwise.
    """
    indexes = {name: index for index, name in enumerate(given.names)}
    values = constants or {}

    def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            cast_column(batch.column(indexes[field.name]), field.type, field.name)
            if field.name in indexes
            else pa.repeat(values.get(field.name, pa.scalar(None, field.type)), batch.num_rows)
            for field in wanted
        ]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    return conform


def cast_column(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Cast values as deltalake does: truncate fractions, and raise for values that do not fit.

    >>> cast_column(pa.array(["7"]), pa.int64(), "n").to_pylist()
    [7]
    """
    if column.type == wanted:
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        return cast_column(column.storage, wanted, name)
    _reject_narrower(column.type, wanted, name)
    try:
        return _cast(column, wanted)
    except pa.ArrowNotImplementedError as error:
        raise _mismatch(name, column.type, wanted) from error
    except pa.ArrowInvalid as error:
        raise TxnLogSchemaError(
            f"Cast error: {_failed_cast(column, wanted)}",
            column=name,
            prefix=ARROW_ERROR,
            help=f"Column {name!r} is {wanted}: cast or clean the values before writing.",
        ) from error


def in_microseconds(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return rows with timestamps truncated to microseconds."""
    names = set(nanosecond_columns(rows.schema))
    wanted = pa.schema(
        [f.with_type(_to_microseconds(f.type)) if f.name in names else f for f in rows.schema]
    )
    cast = map(conformer(rows.schema, wanted), rows)
    return pa.RecordBatchReader.from_batches(wanted, cast)


def _to_microseconds(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if types.is_struct(kind):
        return pa.struct([member.with_type(_to_microseconds(member.type)) for member in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_to_microseconds(key.type)), item.with_type(_to_microseconds(item.type))
        )
    if _is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    return _to_microseconds(kind.value_type) if types.is_dictionary(kind) else kind


def _failed_cast(column: pa.Array, wanted: pa.DataType) -> str:
    """Return a message with the first value that cannot be cast.

    Arrow's own message has the last such value.
    """
    good, bad = 0, len(column)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _cast(_part(column, good, middle), wanted)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    try:
        value = column[good].as_py()
    except (OverflowError, ValueError):  # a timestamp outside the range of Python's datetime
        value = column[good].value
    if isinstance(value, str):
        return f"Cannot cast string {value!r} to value of {arrow_name(wanted)} type"
    shown = "NaN" if value != value else value
    return f"Can't cast value {shown} to type {arrow_name(wanted)}"


def _part(column: pa.Array, start: int, end: int) -> pa.Array:
    types = pa.types
    views = types.is_list_view(column.type) or types.is_large_list_view(column.type)
    if types.is_nested(column.type) and not views:
        # Copy the values: for a sliced list, Arrow also casts the values outside the slice.
        return column.take(pa.array(range(start, end)))
    return column.slice(start, end - start)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_list_view(column.type) or types.is_large_list_view(column.type):
        # Do not use Arrow's cast of list views, which ignores the offsets.
        return pa.array(column.to_pylist(), wanted)
    if has_void(wanted):
        found = as_void(column, wanted)
        return found if found.type == wanted else found.cast(wanted)
    if types.is_list(wanted) and not (_is_list(column.type) or types.is_null(column.type)):
        return _cast(pa.ListArray.from_arrays(range(len(column) + 1), column), wanted)
    if types.is_floating(column.type) and types.is_integer(wanted):
        return pc.trunc(column).cast(wanted)
    if types.is_decimal(wanted) and types.is_integer(column.type):
        # Arrow requires a precision that fits every value of the integer type.
        return column.cast(pa.decimal128(38, wanted.scale)).cast(wanted)
    if types.is_timestamp(wanted) and wanted.tz is not None and _is_text(column.type):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            return column.cast(pa.timestamp(wanted.unit)).cast(wanted)  # no zone means UTC
    # If nanoseconds are enabled in this process, do not truncate them.
    loses_nanoseconds = has_unit(column.type, "ns") and has_unit(wanted, "us")
    truncates = not (loses_nanoseconds and nanoseconds_enabled())
    options = pc.CastOptions(target_type=wanted, allow_time_truncate=truncates)
    return pc.cast(column, options=options)


def _reject_narrower(given: pa.DataType, wanted: pa.DataType, name: str) -> None:
    types = pa.types
    if types.is_decimal(given) and types.is_decimal(wanted):
        whole = wanted.precision - wanted.scale
        if given.scale > wanted.scale or given.precision - given.scale > whole:
            raise _mismatch(name, given, wanted)
    if types.is_struct(given) != types.is_struct(wanted) and not types.is_null(given):
        raise _mismatch(name, given, wanted)


def _check_members(
    given: Any,
    wanted: Any,
    missing: list[str],
    optional: Collection[str],
    table: str,
    parent: str | None = None,
) -> None:
    names = [field.name for field in given]
    known = {field.name for field in wanted}
    unknown = [name for name in names if name not in known]
    present = sum(1 for field in wanted if field.name in optional and field.name not in names)
    if len(names) != len(wanted) - present:
        count = f"{len(names)} vs {len(wanted)}"
        lacking = [field.name for field in wanted if field.name not in {*names, *optional}]
        parts = [("not in the table", unknown), ("missing", lacking)]
        details = "; ".join(f"{what}: {', '.join(some)}" for what, some in parts if some)
        raise TxnLogSchemaError(
            f"Cannot cast schema, number of fields does not match: {count}"
            + (f" ({details})" if details else ""),
            table=table,
            column=_member_path(parent, (unknown or lacking or [None])[0]),
            help="Give the data the table's columns, or write with schema_mode='merge'.",
        )
    if unknown or missing:
        raise TxnLogSchemaError(
            f"Field {(unknown or missing)[0]} not found in schema",
            table=table,
            column=_member_path(parent, (unknown or missing)[0]),
            help="Give the data the table's columns, or write with schema_mode='merge'.",
        )


def _member_path(parent: str | None, name: str | None) -> str | None:
    """Return the dotted path of a field in a struct, or the name of a column."""
    return name if parent is None or name is None else f"{parent}.{name}"


def _check_nested(given: pa.Field, wanted: pa.DataType, table: str, path: str) -> None:
    types = pa.types
    if types.is_struct(given.type) and types.is_struct(wanted):
        names = {field.name for field in given.type}
        missing = [field.name for field in wanted if field.name not in names]
        _check_members(given.type, wanted, missing, (), table, path)
        for member in given.type:
            _check_nested(member, wanted.field(member.name).type, table, f"{path}.{member.name}")
    elif _is_list(given.type) and types.is_list(wanted):
        _check_inner(given, wanted, given.type.value_type, wanted.value_type)
    elif types.is_map(given.type) and types.is_map(wanted):
        _check_inner(given, wanted, given.type.item_type, wanted.item_type)


def _check_inner(
    given: pa.Field, wanted: pa.DataType, inner: pa.DataType, wanted_inner: pa.DataType
) -> None:
    if _member_names(inner) != _member_names(wanted_inner):
        raise _mismatch(given.name, given.type, wanted)


def _member_names(kind: pa.DataType) -> set[str]:
    return {field.name for field in kind} if pa.types.is_struct(kind) else set()


def _mismatch(name: str, given: pa.DataType, wanted: pa.DataType) -> TxnLogSchemaError:
    return TxnLogSchemaError(
        f"Cannot cast field {name} from {arrow_name(given)} to {arrow_name(wanted)}",
        column=name,
        help="Cast the data to the table's type before writing.",
    )


def arrow_name(kind: pa.DataType) -> str:
    """Return the name that a type has in deltalake's messages.

    >>> arrow_name(pa.struct([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]))
    'Struct("a": Int64, "b": non-null Utf8)'
    """
    types = pa.types
    if types.is_integer(kind):
        return str(kind).replace("uint", "UInt").replace("int", "Int")
    if types.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else f', "{kind.tz}"'
        return f"Timestamp({kind.unit.replace('u', 'µ')}{zone})"
    if types.is_struct(kind):
        members = (f'"{field.name}": {_member(field)}' for field in kind)
        return f"Struct({', '.join(members)})"
    if types.is_list(kind):
        return f"List({_member(kind.value_field)})"
    return _NAMES.get(str(kind), str(kind))


def _member(field: pa.Field) -> str:
    return arrow_name(field.type) if field.nullable else f"non-null {arrow_name(field.type)}"


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    return any(test(kind) for test in tests)


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _all_nullable(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _all_nullable(kind.value_type)))
    if types.is_map(kind):
        key = pa.field(kind.key_field.name, _all_nullable(kind.key_type), nullable=False)
        return pa.map_(key, pa.field(kind.item_field.name, _all_nullable(kind.item_type)))
    return kind
