"""Rewrite expressions so that DuckDB and Spark evaluate them as DataFusion does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

_DATE = exp.DType.DATE
_TEXT = exp.DType.TEXT
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
_NUMBERS: dict[exp.DType, str] = {
    exp.DType.TINYINT: "Int8",
    exp.DType.SMALLINT: "Int16",
    exp.DType.INT: "Int32",
    exp.DType.BIGINT: "Int64",
    exp.DType.FLOAT: "Float32",
    exp.DType.DOUBLE: "Float64",
}
_ARROW: dict[str, exp.DType] = {
    **{name: kind for kind, name in _NUMBERS.items()},
    "Boolean": exp.DType.BOOLEAN,
    **dict.fromkeys(("Utf8", "LargeUtf8", "Utf8View"), _TEXT),
    "Date32": _DATE,
}
_BINARY = (exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB)
_TIMESTAMPS = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ),
    exp.DType.TIMESTAMP_NS,
)
_BOOLEANS = {"true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"}
_DAY = re.compile(r"\s*[+-]?\d{4,}-\d{1,2}-\d{1,2}")


def _accepts(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return is_valid


_IS_VALID: dict[object, Callable[[str], bool]] = {
    **{kind: _accepts(int if name.startswith("Int") else float) for kind, name in _NUMBERS.items()},
    exp.DType.DECIMAL: _accepts(float),
    exp.DType.BOOLEAN: lambda text: text.strip().lower() in _BOOLEANS,
    _DATE: lambda text: _DAY.match(text) is not None,
    # Check only the length: the engine rejects a string that is long enough but not a timestamp.
    **{kind: lambda text: len(text) > 9 for kind in _TIMESTAMPS},
}
"""Maps a type to a function that returns whether a string can be cast to the type."""
_CAST_ERRORS: dict[object, str] = {
    **{
        kind: f"Cast error: Cannot cast string '{{}}' to value of {name} type"
        for kind, name in (
            *_NUMBERS.items(),
            (exp.DType.DECIMAL, "Decimal128(38, 10)"),
            (_DATE, "Date32"),
        )
    },
    exp.DType.BOOLEAN: "Cast error: Cannot cast value '{}' to value of Boolean type",
    **dict.fromkeys(
        _TIMESTAMPS,
        "Parser error: Error parsing timestamp from '{}': "
        "timestamp must contain at least 10 characters",
    ),
}


def arrow_type(kind: exp.DataType) -> str:
    """Return the name of a type in deltalake's messages."""
    return _NUMBERS.get(kind.this) or ("Utf8" if kind.this == _TEXT else kind.sql())


def apply_datafusion_semantics(node: exp.Expr) -> None:
    """Rewrite a node so that every engine evaluates it as DataFusion does."""
    if isinstance(node, exp.Div):
        node.set("typed", True)
        node.set("safe", False)
    elif isinstance(node, exp.Concat):
        node.set("coalesce", True)
        node.set("expressions", [_timestamp_text(part) or part for part in node.expressions])
    elif isinstance(node, exp.Bracket):
        node.set("expressions", [_zero_based_index(index) for index in node.expressions])
    elif isinstance(node, _COMPARISONS):
        _compare_as_text(node)
        _reject_invalid_text(node)
    elif isinstance(node, exp.VarMap):
        _map_of_lists(node)
    elif isinstance(node, exp.Encode | exp.Decode):
        _binary_as_text(node)
    elif isinstance(node, exp.Substring):
        _clip_negative_start(node)
    elif isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS:
        node.replace(_FUNCTIONS[node.name.lower()](node.expressions))


def cast_date_number(node: exp.Expr) -> exp.Expr | None:
    """Replace a cast between a date and an integer (days since 1970) by date arithmetic.

    Engines do not have such casts. Return None for any other node.
    """
    given = node.this.type if isinstance(node, exp.Cast) else None
    if not isinstance(node, exp.Cast) or given is None:
        return None
    unit = exp.var("DAY")
    if node.to.this == _DATE and given.this in exp.DataType.INTEGER_TYPES:
        day = exp.DateAdd(this=_first_day(), expression=exp.paren(node.this.copy()), unit=unit)
        made = exp.Cast(this=day, to=node.to)
    elif node.to.this in exp.DataType.INTEGER_TYPES and given.this == _DATE:
        days = exp.DateDiff(this=node.this.copy(), expression=_first_day(), unit=unit)
        made = exp.Cast(this=days, to=node.to)
    else:
        return None
    made.type = node.to
    return made


def _first_day() -> exp.Expr:
    return exp.cast(exp.Literal.string("1970-01-01"), _DATE)


def _compare_as_text(node: exp.Expr) -> None:
    """Convert number literals to strings if they are compared with a string."""
    sides = list(node.iter_expressions())
    if any(side.type is not None and side.type.this == _TEXT for side in sides):
        for side in sides:
            number = side.this if isinstance(side, exp.Neg) else side
            if isinstance(number, exp.Literal) and not number.is_string:
                sign = "" if number is side else "-"
                side.replace(exp.Literal.string(f"{sign}{number.this}"))


def _reject_invalid_text(node: exp.Expr) -> None:
    """Raise for a string literal that cannot be cast to the type that it is compared with."""
    sides = list(node.iter_expressions())
    kinds = [side.type.this for side in sides if side.type is not None]
    kind = next((kind for kind in kinds if kind in _IS_VALID), None)
    for side in sides if kind is not None else ():
        if isinstance(side, exp.Literal) and side.is_string and not _IS_VALID[kind](side.this):
            raise TxnLogSchemaError(
                _CAST_ERRORS[kind].format(side.this),
                help="Compare the column with a value of its own type.",
            )


def _map_of_lists(node: exp.VarMap) -> None:
    """Unpack `map([keys], [values])`; Spark would treat each list as a single key or value."""
    for name in ("keys", "values"):
        held = node.args[name].expressions
        if len(held) == 1 and isinstance(held[0], exp.Array):
            node.set(name, held[0])


def _binary_as_text(node: exp.Encode | exp.Decode) -> None:
    """Rewrite `encode` and `decode` of hex and base64; DataFusion does not pad base64."""
    encoding = node.args["charset"].name.lower() if node.args.get("charset") else ""
    value = node.this
    if encoding not in ("base64", "hex"):
        return
    made: exp.Expr
    if isinstance(node, exp.Encode):
        if value.type is None or value.type.this not in _BINARY:
            value = exp.Encode(this=value, charset=exp.Literal.string("utf-8"))
        if encoding == "hex":
            made = exp.Lower(this=exp.Hex(this=value))
        else:
            padding = exp.Literal.string("=")
            made = exp.Trim(this=exp.ToBase64(this=value), expression=padding, position="TRAILING")
    elif encoding == "hex":
        made = exp.Unhex(this=value)
    else:
        length = exp.Length(this=value.copy())
        missing = exp.Mod(
            this=exp.paren(
                exp.Sub(
                    this=exp.Literal.number(4),
                    expression=exp.Mod(this=length, expression=exp.Literal.number(4)),
                )
            ),
            expression=exp.Literal.number(4),
        )
        filled = exp.Repeat(this=exp.Literal.string("="), times=exp.cast(missing, "INT"))
        made = exp.FromBase64(this=exp.Concat(expressions=[value, filled]))
    kind = exp.DType.VARBINARY if isinstance(node, exp.Decode) else _TEXT
    made.type = exp.DataType(this=kind)
    node.replace(made)


def _clip_negative_start(node: exp.Substring) -> None:
    """Rewrite a negative start of `substr`.

    In DataFusion, it is a position before the first character, not a position from the end. The
    positions before the first character count towards the length.
    """
    start, length = node.args.get("start"), node.args.get("length")
    if not (isinstance(start, exp.Neg) and _is_integer_literal(start.this)):
        return
    if length is not None and not _is_integer_literal(length):
        return
    if length is not None:
        left = int(length.this) - int(start.this.this) - 1
        node.set("length", exp.Literal.number(max(0, left)))
    node.set("start", exp.Literal.number(1))


def timestamp_to_text(node: exp.Expr) -> exp.Expr | None:
    """Replace a cast of a timestamp to a string by an expression with DataFusion's format.

    An example of the format is 2024-05-01T10:00:00Z. Fractions of a second have 0, 3, 6 or 9
    digits. Return None for any other node.
    """
    if not isinstance(node, exp.Cast) or node.to.this not in exp.DataType.TEXT_TYPES:
        return None
    return _timestamp_text(node.this)


def _timestamp_text(timestamp: exp.Expr) -> exp.Expr | None:
    kind = _timestamp_type(timestamp)
    if kind is None:
        return None
    has_nanoseconds = kind == exp.DType.TIMESTAMP_NS
    digits = "%n" if has_nanoseconds else "%f"
    zeros = r"(\.000000000|000000|000)$" if has_nanoseconds else r"(\.000000|000)$"
    form = exp.Literal.string(f"%Y-%m-%dT%H:%M:%S.{digits}")
    made: exp.Expr = exp.RegexpReplace(
        this=exp.TimeToStr(this=timestamp.copy(), format=form),
        expression=exp.Literal.string(zeros),
        replacement=exp.Literal.string(""),
    )
    if kind == exp.DType.TIMESTAMPTZ or (has_nanoseconds and _has_zone(timestamp)):
        made = exp.DPipe(this=made, expression=exp.Literal.string("Z"))
    held = exp.paren(made, copy=False)
    held.type = exp.DataType(this=_TEXT)
    return held


def _timestamp_type(node: exp.Expr) -> exp.DType | None:
    """Return the type of a timestamp, with or without a zone; None for other types."""
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        # sqlglot does not infer this type. It is the type of the argument, or a timestamp without
        # a zone if the argument is a date.
        is_date = node.this.type is not None and node.this.type.this == _DATE
        return exp.DType.TIMESTAMPNTZ if is_date else _timestamp_type(node.this)
    kind = None if node.type is None else node.type.this
    known = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMP_NS)
    return kind if kind in known else None


def _has_zone(timestamp: exp.Expr) -> bool:
    """Return whether a nanosecond timestamp comes from a column with a zone.

    The SQL type of nanoseconds never has a zone.
    """
    columns = timestamp.find_all(exp.Column)
    return any(each.meta.get("delta_type") == "timestamp_nanos" for each in columns)


def _is_integer_literal(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()


def _zero_based_index(index: exp.Expr) -> exp.Expr:
    if isinstance(index, exp.Neg) and _is_integer_literal(index.this):  # from the end
        return exp.Neg(this=exp.Literal.number(int(index.this.this) + 1))
    if isinstance(index, exp.Literal) and not index.is_string and index.this.isdigit():
        return exp.Literal.number(int(index.this) - 1)
    return index


def _regexp_match(parts: list[exp.Expr]) -> exp.Expr:
    text, pattern = parts[0], parts[1]
    found = exp.RegexpExtract(this=text.copy(), expression=pattern.copy())
    return exp.case().when(
        exp.RegexpLike(this=text, expression=pattern), exp.Array(expressions=[found])
    )


def _arrow_cast(parts: list[exp.Expr]) -> exp.Expr:
    known = _ARROW.get(parts[1].name)
    if known is None:
        return exp.Anonymous(this="arrow_cast", expressions=parts)
    return exp.cast(parts[0], known)


_FUNCTIONS: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    "make_array": lambda parts: exp.Array(expressions=parts),
    "cardinality": lambda parts: exp.ArraySize(this=parts[0]),
    "regexp_match": _regexp_match,
    "arrow_cast": _arrow_cast,
    "now": lambda _: exp.CurrentTimestamp(),
    "date_part": lambda parts: exp.Extract(this=exp.var(parts[0].name), expression=parts[1]),
    "get_field": lambda parts: exp.Dot(
        this=parts[0], expression=exp.to_identifier(parts[1].name, quoted=True)
    ),
    "character_length": lambda parts: exp.Length(this=parts[0]),
    "strpos": lambda parts: exp.StrPosition(this=parts[0], substr=parts[1]),
    "btrim": lambda parts: exp.Trim(this=parts[0], expression=parts[1] if parts[1:] else None),
}
