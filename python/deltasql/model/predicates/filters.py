"""Convert filter lists of deltalake and pyarrow to a SQL condition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.parser import field_of
from deltasql.model.schema.column_paths import split_column_path
from deltasql.model.schema.schema import NANOSECOND_TYPES, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.model.schema.schema import StructType

Filter: TypeAlias = Sequence[Any]
Filters: TypeAlias = Sequence[Filter] | Sequence[Sequence[Filter]]

_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "==": exp.EQ,
    "!=": exp.NEQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_NULL_TESTS = {"is": True, "is null": True, "is not": False, "is not null": False}
_OPERATORS = ", ".join([*_COMPARISONS, "in", "not in", "is null", "is not null"])


def filters_to_condition(
    filters: Filters, schema: StructType, partition_columns: Sequence[str]
) -> exp.Expr:
    """Convert filters to a SQL condition.

    The filters in a list `[(column, operator, value), …]` are joined by AND; if there are several
    such lists, the lists are joined by OR. The value None means NULL. For a partition column, ""
    also means NULL, as in deltalake.

    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("day", "date"), StructField("n", "long")))
    >>> filters_to_condition([("day", "=", ""), ("n", ">", 3)], table, ["day"]).sql()
    '"day" IS NULL AND "n" > 3'
    """
    groups = [filters] if _is_one_group(filters) else filters
    conditions = []
    for group in groups:
        parts = [_condition(entry, schema, partition_columns) for entry in group]
        conditions.append(exp.and_(*parts, copy=False) if parts else exp.true())
    return exp.or_(*conditions, copy=False) if conditions else exp.true()


def _is_one_group(filters: Filters) -> bool:
    # The first element of a filter is a column name; the first element of a group is a filter.
    return bool(filters) and len(filters[0]) > 0 and isinstance(filters[0][0], str)


def _condition(entry: Filter, schema: StructType, partition_columns: Sequence[str]) -> exp.Expr:
    shape = isinstance(entry, tuple | list) and len(entry) in (2, 3)
    if not shape or not all(isinstance(part, str) for part in entry[:2]):
        raise TxnLogSchemaError(
            f"a filter must be (column, operator, value), got {entry!r}",
            help="Write for example [('day', '=', '2024-05-01'), ('n', '>', 3)].",
        )
    name, op = entry[0], " ".join(entry[1].lower().split())
    value = entry[2] if len(entry) == 3 else None
    column = _column(name, schema)
    empty_is_null = name in partition_columns
    if op in _NULL_TESTS and value is None:
        return _null_test(column, is_null=_NULL_TESTS[op])
    if op in _COMPARISONS and len(entry) == 3:
        if _is_null(value, empty_is_null) and op in ("=", "==", "!=", "<>"):
            return _null_test(column, is_null=op in ("=", "=="))
        return _COMPARISONS[op](this=column, expression=_literal(value, name))
    if op in ("in", "not in") and isinstance(value, Iterable) and not isinstance(value, str):
        return _membership(column, list(value), name, empty_is_null, negated=op == "not in")
    raise TxnLogSchemaError(
        f"Invalid partition filter found: {_shown(entry)}.",
        column=name,
        help=f"It has an unknown operator or a wrong value. Operators: {_OPERATORS}; "
        "in and not in take a list.",
    )


def _shown(entry: Filter) -> str:
    parts = (f'"{each}"' if isinstance(each, str) else repr(each) for each in entry)
    return f"({', '.join(parts)})"


def _membership(
    column: exp.Expr, values: list[Any], name: str, empty_is_null: bool, *, negated: bool
) -> exp.Expr:
    present = [v for v in values if not _is_null(v, empty_is_null)]
    literals = [_literal(v, name) for v in present]
    listed: exp.Expr = exp.In(this=column.copy(), expressions=literals) if literals else exp.false()
    if len(present) == len(values):
        return exp.not_(listed) if negated else listed
    if not negated:
        return exp.or_(listed, _null_test(column, is_null=True))
    return exp.and_(exp.not_(listed), _null_test(column, is_null=False))


def _is_null(value: Any, empty_is_null: bool) -> bool:
    return value is None or (empty_is_null and value == "")


def _null_test(column: exp.Expr, *, is_null: bool) -> exp.Expr:
    test = exp.Is(this=column.copy(), expression=exp.null())
    return test if is_null else exp.not_(test)


def _column(name: str, schema: StructType) -> exp.Expr:
    whole = schema.find(name) is not None
    parts = [name] if whole else split_column_path(name)
    if parts[0].casefold() not in {known.casefold() for known in schema.names}:
        raise TxnLogSchemaError(
            "Data does not match the schema or partitions of the table: "
            f"Field '{name}' is not a root table field.",
            column=name,
            help=f"{nearest(name, schema.names)}The columns are {', '.join(schema.names)}.",
        )
    return field_of(parts)


def _literal(value: Any, name: str) -> exp.Expr:
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, int | Decimal):
        return _number(Decimal(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return _number(Decimal(repr(value)))
        return exp.cast(exp.Literal.string(str(value)), exp.DataType.Type.DOUBLE)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            text = timestamp_text(value, " ")
            return exp.cast(exp.Literal.string(text), exp.DataType.Type.TIMESTAMPNTZ)
        text = timestamp_text(value.astimezone(UTC), " ")
        return exp.cast(exp.Literal.string(f"{text}Z"), exp.DataType.Type.TIMESTAMPTZ)
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), exp.DataType.Type.DATE)
    raise TxnLogSchemaError(
        f"cannot compare column {name!r} with a {type(value).__name__}",
        column=name,
        help="Give a string, number, boolean, date, datetime or None.",
    )


def timestamp_text(timestamp: datetime, separator: str) -> str:
    """Format a datetime with microseconds, or with the nanoseconds of a pandas Timestamp.

    >>> timestamp_text(datetime(2024, 5, 1, tzinfo=UTC), "T")
    '2024-05-01T00:00:00.000000'
    """
    seconds = timestamp.timetuple()[:6]
    text = datetime(*seconds, timestamp.microsecond).isoformat(separator, "microseconds")
    # Only pandas.Timestamp, a subclass of datetime, has this attribute.
    rest: int = getattr(timestamp, "nanosecond", 0)
    return f"{text}{rest:03d}" if rest else text


def with_timestamp_texts(values: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    """Return values by column; datetimes for nanosecond columns become ISO strings in UTC."""
    found = dict(values)
    for name, value in values.items():
        field = schema.find(name)
        if isinstance(value, datetime) and field and field.type in NANOSECOND_TYPES:
            timestamp = value if value.tzinfo is None else value.astimezone(UTC)
            found[name] = timestamp_text(timestamp, "T")
    return found


def _number(value: Decimal) -> exp.Expr:
    literal = exp.Literal.number(format(abs(value), "f"))
    return exp.Neg(this=literal) if value < 0 else literal
