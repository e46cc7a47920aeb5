"""Delta types in the queries of an operation, and casts that mean the same on every engine."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

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
from deltasql.operations.sql.nanoseconds import keep_nanoseconds, written_text

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    # No engine has nanoseconds with a zone: both are a clock, the first one in UTC.
    "timestamp_nanos": _KINDS.TIMESTAMP_NS,
    "timestamp_nanos_ntz": _KINDS.TIMESTAMP_NS,
    "variant": _KINDS.VARIANT,
    "void": _KINDS.INT,  # engines have no name for it that both take; all of it is null
}
_SHOWN = 40  # characters of what is no type
_MICROSECONDS = ("timestamp", "timestamp_ntz")
_INTEGERS = {"byte", "short", "integer", "long"}
_WHOLE = {_TYPES[name] for name in _INTEGERS}
_FRACTIONS = {_KINDS.FLOAT, _KINDS.DOUBLE, _KINDS.DECIMAL}
_WITHOUT_ZONE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?")


def sql_type(data_type: DataType) -> exp.DataType:
    """Return a Delta type as a query has it.

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
            f"a column has the type {type_name(data_type)[:_SHOWN]}, which no engine knows",
            help="Something else than a Delta writer made this schema.",
        )
    return exp.DataType(this=_TYPES[data_type])


def cast_to(expression: exp.Expr, data_type: DataType, *, safe: bool = False) -> exp.Expr:
    """Cast a value to a column's type; what does not fit is an error, or null when `safe`.

    A fraction loses its digits behind the point, and a whole number that becomes a timestamp
    counts its units, as in deltalake.

    >>> cast_to(exp.Literal.number(0), "timestamp").sql(dialect="duckdb")
    "CAST('1970-01-01T00:00:00.000000Z' AS TIMESTAMPTZ)"
    """
    wanted = sql_type(data_type)
    known = expression.type
    # What is calculated with decimals has more digits than sqlglot says.
    is_sure = decimal_type(data_type) is None or isinstance(expression, exp.Column | exp.Cast)
    if known is not None and known == wanted and is_sure:
        return expression
    if known is not None and known.this == _KINDS.TIMESTAMP_NS and data_type in _MICROSECONDS:
        raise _cut(expression, data_type)
    value = expression
    counted = _counted(expression, data_type)
    plain = expression.unnest()
    if counted is not None:
        value = exp.Literal.string(counted)
    elif data_type == "timestamp" and isinstance(plain, exp.Literal) and plain.is_string:
        value = exp.Literal.string(in_utc(plain.this) or plain.this)
    elif data_type in NANOSECOND_TYPES:
        value = written_text(expression) or keep_nanoseconds(expression, are_wanted=True)
    elif data_type in _INTEGERS and known is not None and known.this in _FRACTIONS:
        value = truncated(expression)
    return (
        exp.TryCast(this=value, to=wanted, safe=True) if safe else exp.Cast(this=value, to=wanted)
    )


def drops_digits(cast: exp.Cast) -> bool:
    """Tell whether a cast makes a whole number of one that may have a fraction."""
    given = cast.this.type
    return cast.to.this in _WHOLE and given is not None and given.this in _FRACTIONS


def truncated(expression: exp.Expr) -> exp.Expr:
    """Cut off the digits behind the point: some engines round where others cut."""
    value = exp.paren(expression)
    return exp.Sub(this=value, expression=exp.Mod(this=value.copy(), expression=_one()))


def conformed(
    value: exp.Expr, given: DataType, wanted: DataType, *, safe: bool = False
) -> exp.Expr:
    """Give a value another type; the members of structs are found by name, missing ones are null.

    >>> from deltasql.model.schema.schema import StructField
    >>> wider = StructType((StructField("a", "long"), StructField("b", "long")))
    >>> conformed(column("x"), StructType((StructField("b", "long"),)), wider).sql("spark")
    'CASE WHEN `x` IS NULL THEN NULL ELSE STRUCT(CAST(NULL AS BIGINT) AS `a`, (`x`).`b` AS `b`) END'
    """
    if given == wanted:
        return value
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        members = []
        for member in wanted.fields:
            present = given.find(member.name)
            inner = exp.null() if present is None else _member(value, present.name)
            kind = "void" if present is None else present.type
            made = conformed(inner, kind, member.type, safe=safe)
            members.append(exp.PropertyEQ(this=identifier(member.name), expression=made))
        missing = exp.Is(this=value.copy(), expression=exp.null())
        return exp.Case(
            ifs=[exp.If(this=missing, true=exp.null())], default=exp.Struct(expressions=members)
        )
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        if sql_type(given) != sql_type(wanted):
            item = exp.to_identifier("item")
            made = conformed(item, given.element_type, wanted.element_type, safe=safe)
            return exp.Transform(
                this=value, expression=exp.Lambda(this=made, expressions=[item.copy()])
            )
        return value
    if given in NANOSECOND_TYPES and wanted in _MICROSECONDS:
        raise _cut(value, wanted)
    return cast_to(value, wanted, safe=safe)


def in_utc(text: str) -> str | None:
    """Return a moment without a zone as one in UTC; None for any other text.

    >>> in_utc("2024-05-01"), in_utc("2024-05-01T10:00:00+02:00")
    ('2024-05-01T00:00:00Z', None)
    """
    found = _WITHOUT_ZONE.fullmatch(text)
    if not found:
        return None
    missing = "T00:00:00" if not found[1] else "" if found[2] else ":00"
    return f"{text}{missing}Z"


def identifier(name: str) -> exp.Identifier:
    """Return a name that is taken as it is written."""
    return exp.Identifier(this=name, quoted=True)


def column(name: str, relation: str | None = None) -> exp.Column:
    """Return a column of a relation of the query.

    >>> column("the id", "t").sql(dialect="spark")
    '`t`.`the id`'
    """
    if relation is None:
        return exp.Column(this=identifier(name))
    return exp.Column(this=identifier(name), table=identifier(relation))


def field_of(path: Sequence[str], relation: str | None = None) -> exp.Expr:
    """Return a column, or the field of a struct in one."""
    reference: exp.Expr = column(path[0], relation)
    for name in path[1:]:
        reference = exp.Dot(this=reference, expression=identifier(name))
    return reference


def typed_null(data_type: DataType) -> exp.Expr:
    """Return null as a value of a type."""
    return exp.Cast(this=exp.null(), to=sql_type(data_type))


def is_true(condition: exp.Expr) -> exp.Expr:
    """Return whether a condition holds: null means no."""
    return exp.Coalesce(this=condition.copy(), expressions=[exp.false()])


def is_not_true(condition: exp.Expr) -> exp.Expr:
    """Return whether a condition is false or null."""
    return exp.Not(this=is_true(condition))


def _member(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Dot(this=exp.paren(value.copy()), expression=identifier(name))


def _nested(kind: exp.DType, inner: list[exp.DataType]) -> exp.DataType:
    return exp.DataType(this=kind, expressions=inner, nested=True)


def _one() -> exp.Expr:
    return exp.Literal.number(1)


def _cut(expression: exp.Expr, data_type: DataType) -> TxnLogSchemaError:
    return TxnLogSchemaError(
        f"the nanoseconds of {expression.sql()} would be cut to the microseconds of a column "
        f"of type {type_name(data_type)}",
        help="To cut them, write CAST(… AS TIMESTAMP), or cast the data before.",
    )


def _counted(expression: exp.Expr, data_type: DataType) -> str | None:
    """Return the moment or the day that a whole number counts to."""
    node = expression.unnest()
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this.unnest(), -1
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    number = sign * int(node.this)
    try:
        if data_type == "date":
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        if data_type in NANOSECOND_TYPES:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=number // 1000)
            return f"{moment.isoformat('T', 'microseconds')}{number % 1000:03d}"
        moment = datetime(1970, 1, 1) + timedelta(microseconds=number)
    except OverflowError:
        return None
    if data_type not in _MICROSECONDS:
        return None
    zone = "Z" if data_type == "timestamp" else ""
    return moment.isoformat("T", "microseconds") + zone
