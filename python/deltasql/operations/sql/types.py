"""Delta types in SQL, and casts to them that give the same result on every engine."""

from __future__ import annotations

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.schema import (
    NANOSECOND_TYPES,
    ArrayType,
    DataType,
    MapType,
    StructType,
    decimal_type,
    type_name,
)
from deltasql.operations.sql.queries import identifier
from deltasql.operations.sql.timestamps import (
    MICROSECOND_TYPES,
    in_utc,
    keep_nanoseconds,
    text_since_epoch,
    timestamp_literal,
)

_KINDS = exp.DType
_TYPES = {
    "byte": _KINDS.TINYINT,
    "short": _KINDS.SMALLINT,
    "integer": _KINDS.INT,
    "long": _KINDS.BIGINT,
    "float": _KINDS.FLOAT,
    "double": _KINDS.DOUBLE,
    "boolean": _KINDS.BOOLEAN,
    "string": _KINDS.TEXT,
    "binary": _KINDS.BINARY,
    "date": _KINDS.DATE,
    "timestamp": _KINDS.TIMESTAMPTZ,
    "timestamp_ntz": _KINDS.TIMESTAMPNTZ,
    # No engine has a nanosecond type with a zone. Both types have no zone, and the values of the
    # first type are in UTC.
    "timestamp_nanos": _KINDS.TIMESTAMP_NS,
    "timestamp_nanos_ntz": _KINDS.TIMESTAMP_NS,
    "variant": _KINDS.VARIANT,
    "void": _KINDS.INT,  # DuckDB and Spark have no common name for void; all values are null
}
_SHOWN = 40  # characters of an unknown type in an error message
_INTEGERS = {"byte", "short", "integer", "long"}
_INTEGER_TYPES = {_TYPES[name] for name in _INTEGERS}
_FRACTIONS = {_KINDS.FLOAT, _KINDS.DOUBLE, _KINDS.DECIMAL}


def sql_type(data_type: DataType) -> exp.DataType:
    """Return a Delta type as a sqlglot type.

    >>> sql_type(ArrayType("timestamp")).sql(dialect="duckdb")
    'TIMESTAMPTZ[]'
    """
    if isinstance(data_type, StructType):
        members = [
            exp.ColumnDef(this=identifier(member.name), kind=sql_type(member.type))
            for member in data_type.fields
        ]
        return exp.DataType(this=_KINDS.STRUCT, expressions=members, nested=True)
    if isinstance(data_type, ArrayType):
        return _nested(_KINDS.ARRAY, [sql_type(data_type.element_type)])
    if isinstance(data_type, MapType):
        return _nested(_KINDS.MAP, [sql_type(data_type.key_type), sql_type(data_type.value_type)])
    decimal = decimal_type(data_type)
    if decimal is not None:
        sizes = [exp.DataTypeParam(this=exp.Literal.number(size)) for size in decimal]
        return exp.DataType(this=_KINDS.DECIMAL, expressions=sizes)
    if not isinstance(data_type, str) or data_type not in _TYPES:
        raise TxnLogSchemaError(
            f"a column has the type {type_name(data_type)[:_SHOWN]}, which no engine supports",
            help="Check which program wrote the schema: it is not a valid Delta schema.",
        )
    return exp.DataType(this=_TYPES[data_type])


def cast_to(expression: exp.Expr, data_type: DataType, *, safe: bool = False) -> exp.Expr:
    """Cast a value to a column's type; a value that does not fit is an error, or null if `safe`.

    As in deltalake, a cast to an integer truncates a fraction, and an integer that is cast to a
    timestamp counts units since 1970.

    >>> cast_to(exp.Literal.number(0), "timestamp").sql(dialect="duckdb")
    "CAST('1970-01-01T00:00:00.000000Z' AS TIMESTAMPTZ)"
    """
    wanted = sql_type(data_type)
    known = expression.type
    # The result of decimal arithmetic can have more digits than the type that sqlglot infers.
    is_sure = decimal_type(data_type) is None or isinstance(expression, exp.Column | exp.Cast)
    if known is not None and known == wanted and is_sure:
        return expression
    if known is not None and known.this == _KINDS.TIMESTAMP_NS and data_type in MICROSECOND_TYPES:
        raise loses_nanoseconds(expression, data_type)
    value = expression
    since_epoch = text_since_epoch(expression, data_type)
    plain = expression.unnest()
    if since_epoch is not None:
        value = exp.Literal.string(since_epoch)
    elif data_type == "timestamp" and isinstance(plain, exp.Literal) and plain.is_string:
        value = exp.Literal.string(in_utc(plain.this) or plain.this)
    elif data_type in NANOSECOND_TYPES:
        value = timestamp_literal(expression) or keep_nanoseconds(expression, always=True)
    elif data_type in _INTEGERS and known is not None and known.this in _FRACTIONS:
        value = truncated(expression)
    return (
        exp.TryCast(this=value, to=wanted, safe=True) if safe else exp.Cast(this=value, to=wanted)
    )


def drops_digits(cast: exp.Cast) -> bool:
    """Return whether a cast converts a number that may have a fraction to an integer."""
    given = cast.this.type
    return cast.to.this in _INTEGER_TYPES and given is not None and given.this in _FRACTIONS


def truncated(expression: exp.Expr) -> exp.Expr:
    """Truncate a number to an integer; on some engines, a cast would round the number."""
    value = exp.paren(expression)
    return exp.Sub(this=value, expression=exp.Mod(this=value.copy(), expression=_one()))


def typed_null(data_type: DataType) -> exp.Expr:
    """Return a null of a type."""
    return exp.Cast(this=exp.null(), to=sql_type(data_type))


def _nested(kind: exp.DType, inner: list[exp.DataType]) -> exp.DataType:
    return exp.DataType(this=kind, expressions=inner, nested=True)


def _one() -> exp.Expr:
    return exp.Literal.number(1)


def loses_nanoseconds(expression: exp.Expr, data_type: DataType) -> TxnLogSchemaError:
    """Return the error for a value whose nanoseconds do not fit the type of its column."""
    return TxnLogSchemaError(
        f"{expression.sql()} has nanoseconds, but the column has the type {type_name(data_type)}, "
        "which stores microseconds",
        help="To truncate them, write CAST(… AS TIMESTAMP), or cast the data first.",
    )
