"""Plots of query results; the types of the columns determine the axes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.console.charts import Bar, bar_chart, line_chart
from deltasql.console.units import brief

if TYPE_CHECKING:
    from markupsafe import Markup

KINDS = {"auto": "Auto", "bar": "Bars", "line": "Lines", "scatter": "Points", "none": "No plot"}
_MAX_BARS = 60
_MAX_SERIES = 4
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart with the names of its x axis and its series."""

    drawing: Markup
    across: str
    series: tuple[str, ...]


def plot_of(rows: pa.Table, kind: str) -> Plot | None:
    """Draw rows as a plot; return None if they cannot be plotted."""
    if kind not in KINDS or kind == "none" or not rows.num_rows >= 2:
        return None
    numeric = [place for place, field in enumerate(rows.schema) if _is_numeric(field.type)]
    across = next((place for place in range(rows.num_columns) if place not in numeric), None)
    if across is None:
        if len(numeric) < 2:
            return None
        across = numeric.pop(0)
    if not numeric or pa.types.is_nested(rows.schema.field(across).type):
        return None
    chosen = numeric[:_MAX_SERIES]
    names = rows.column_names
    drawing = _drawing(rows, across, chosen, kind)
    if drawing is None:
        return None
    shown = chosen[:1] if drawing[0] == "bar" else chosen
    return Plot(drawing[1], names[across], tuple(names[place] for place in shown))


def _drawing(
    rows: pa.Table, across: int, chosen: list[int], kind: str
) -> tuple[str, Markup] | None:
    xs = rows.column(across).to_pylist()
    places = [_place(value) for value in xs]
    is_ordered = all(place is not None for place in places)
    if kind == "bar" or (kind == "auto" and (not is_ordered or len(xs) <= 3)) or not is_ordered:
        ys = [_number(value) for value in rows.column(chosen[0]).to_pylist()][:_MAX_BARS]
        every = max(1, -(-len(ys) // 12))
        bars = [
            Bar(y or 0.0, _short(x) if place % every == 0 else "", f"{_text(x)}: {_text(y)}")
            for place, (x, y) in enumerate(zip(xs, ys, strict=False))
        ]
        return "bar", bar_chart(bars, f"{rows.column_names[chosen[0]]} by row", height=280)
    series = []
    for number in chosen:
        ys = [_number(value) for value in rows.column(number).to_pylist()]
        points = [
            (x, y) for x, y in zip(places, ys, strict=True) if x is not None and y is not None
        ]
        series.append(points if kind == "scatter" else sorted(points))
    if not any(series):
        return None
    known = [place for place in places if place is not None]
    low, high, steps = min(known), max(known), min(_TICKS, len(known))
    labels = [_tick(low, high, step / max(1, steps - 1), xs[0]) for step in range(steps)]
    drawn = line_chart(series, labels, "Plot", height=280, is_dotted=kind == "scatter")
    return "line", drawn


def _tick(low: float, high: float, share: float, like: Any) -> str:
    at = low + (high - low) * share
    if isinstance(like, datetime):
        timestamp = datetime.fromtimestamp(at, like.tzinfo)
        return f"{timestamp:%d %b %H:%M}" if high - low < 86_400 * 3 else f"{timestamp:%d %b %y}"
    if isinstance(like, date):
        return f"{date.fromordinal(round(at)):%d %b %y}"
    return brief(round(at, 2))


def _place(value: object) -> float | None:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return float(value.toordinal())
    return None if isinstance(value, str) else _number(value)


def _number(value: object) -> float | None:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if abs(found) != float("inf") and found == found else None


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, float | int) else str(value)


def _short(value: object) -> str:
    text = brief(value) if isinstance(value, int | float) else str(value)
    return text if len(text) <= 12 else text[:11] + "…"
