"""Expressions over timestamps with nanoseconds, of which DuckDB would cut some to microseconds."""

from __future__ import annotations

import re

from sqlglot import exp

from deltasql.exceptions import UnsupportedFeatureError

_NANOSECONDS = exp.DType.TIMESTAMP_NS
_MICROSECONDS = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ),
    *(exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPLTZ),
)
_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between),
    *(exp.NullSafeEQ, exp.NullSafeNEQ),
)
_FINE = re.compile(r"\.\d{6}\d*[1-9]")


def keep_nanoseconds(expression: exp.Expr, *, are_wanted: bool = False) -> exp.Expr:
    """Return an expression that keeps the nanoseconds of its columns, as DataFusion does.

    What is compared with them gets their type, and intervals are added without a loss. If they
    `are_wanted`, they are kept without such a column too.
    """
    holder = exp.Paren(this=expression)
    nodes = list(holder.walk())
    if are_wanted or any(map(_is_nanoseconds, nodes)):
        for node in reversed(nodes):  # the parts before the whole
            if isinstance(node, _COMPARISONS):
                _compare(node)
            elif isinstance(node, exp.Add | exp.Sub):
                _add(node)
            elif isinstance(node, exp.Cast) and _is_fine_text(node):
                node.replace(nanosecond_value(node))
    inner: exp.Expr = holder.this
    inner.pop()
    return inner


def nanosecond_value(expression: exp.Expr) -> exp.Expr:
    """Return a value as a timestamp with nanoseconds; one that is written out keeps its digits."""
    if _is_nanoseconds(expression):
        return expression.copy()
    value = written_text(expression) or expression.copy()
    return _typed(exp.Cast(this=value, to=exp.DataType(this=_NANOSECONDS)))


def written_text(expression: exp.Expr) -> exp.Expr | None:
    """Return the text of a moment that is written out, also in a cast; None of any other value."""
    plain = expression.unnest()
    if isinstance(plain, exp.Cast) and plain.to.this in _MICROSECONDS:
        plain = plain.this.unnest()
    return plain.copy() if isinstance(plain, exp.Literal) and plain.is_string else None


def _compare(node: exp.Expr) -> None:
    """Compare all sides as nanoseconds if one of them has any."""
    sides = list(node.iter_expressions())
    if any(map(_is_nanoseconds, sides)):
        for side in sides:
            # What sqlglot does not know the type of, as of now(), is a moment here.
            unknown = side.type is None or side.type.this == exp.DType.UNKNOWN
            is_call = isinstance(side, exp.Func) and unknown
            if (is_call or _is_moment(side)) and not _is_nanoseconds(side):
                side.replace(nanosecond_value(side))


def _add(node: exp.Expr) -> None:
    """Add or subtract an interval: DuckDB does that in microseconds, so add the rest again."""
    moment, other = node.this, node.expression
    if isinstance(node, exp.Add) and _is_nanoseconds(other):
        moment, other = other, moment
    if not _is_nanoseconds(moment):
        return
    if _is_moment(other):
        raise UnsupportedFeatureError(
            f"the difference of timestamps with nanoseconds is not supported: {node.sql()}",
            features=("timestampNanos",),
            help="Cast both to TIMESTAMP: the difference is then in microseconds.",
        )
    coarse = exp.Cast(this=moment.copy(), to=exp.DataType(this=exp.DType.TIMESTAMPNTZ))
    moved = type(node)(this=coarse, expression=other.copy())
    rest = exp.Sub(this=_count(moment.copy()), expression=_count(_fine(coarse.copy())))
    total = exp.Add(this=_count(_fine(exp.paren(moved))), expression=rest)
    node.replace(_typed(exp.Anonymous(this="make_timestamp_ns", expressions=[total])))


def _count(moment: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="epoch_ns", expressions=[moment])


def _fine(moment: exp.Expr) -> exp.Expr:
    return exp.Cast(this=moment, to=exp.DataType(this=_NANOSECONDS))


def _typed(node: exp.Expr) -> exp.Expr:
    node.type = exp.DataType(this=_NANOSECONDS)
    return node


def _is_nanoseconds(node: exp.Expr) -> bool:
    return node.type is not None and node.type.this == _NANOSECONDS


def _is_moment(node: exp.Expr) -> bool:
    is_text = isinstance(node, exp.Literal) and node.is_string
    kind = None if node.type is None else node.type.this
    return is_text or kind == _NANOSECONDS or kind in _MICROSECONDS


def _is_fine_text(cast: exp.Cast) -> bool:
    """Tell whether a text with more digits than microseconds have is made a timestamp."""
    text = cast.this
    is_text = isinstance(text, exp.Literal) and text.is_string
    return cast.to.this in _MICROSECONDS and is_text and _FINE.search(text.this) is not None
