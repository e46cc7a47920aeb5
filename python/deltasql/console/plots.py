"""Plots of query results; the types of the columns determine the axes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.console.charts import Bar, bar_chart, line_chart
from deltasql.console.units import brief

if TYPE_CHECKING:
    from markupsafe import Markup

KINDS = {"auto": "Auto", "bar": "Bars", "line": "Lines", "scatter": "Points", "none": "No plot"}
# Limits of the results for which a plot is chosen automatically.
_MAX_COLUMNS = 12
_MAX_CATEGORIES = 20
_MAX_BARS = 60
_MAX_SERIES = 4
_TICKS = 6
_SHORT_DAYS = 180  # labels of a longer axis have the year
_HEIGHT = 280


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart with the names of its x axis and its series."""

    drawing: Markup
    across: str
    series: tuple[str, ...]


def plot_of(rows: pa.Table, kind: str) -> Plot | None:
    """Draw rows as a plot; return None if they cannot be plotted, or not in a useful way.

    `auto` draws one measure by time, or by at most 20 categories.
    """
    if kind not in KINDS or kind == "none" or rows.num_rows < 2:
        return None
    if kind == "auto":
        return _useful_plot(rows)
    numeric = _places(rows, _is_numeric)
    across = next(iter(_places(rows, _is_time) or _places(rows, _is_category)), None)
    if across is None and len(numeric) > 1:
        across = numeric.pop(0)
    if across is None or not numeric:
        return None
    if kind == "bar" or _is_category(rows.schema.field(across).type):
        return _bars(rows, across, numeric[0])
    return _lines(rows, across, numeric[:_MAX_SERIES], is_dotted=kind == "scatter")


def _useful_plot(rows: pa.Table) -> Plot | None:
    if rows.num_columns > _MAX_COLUMNS:
        return None
    measures = [
        place for place in _places(rows, _is_numeric) if not _is_key(rows.column_names[place])
    ]
    times, categories = _places(rows, _is_time), _places(rows, _is_category)
    if not measures or len(times) + len(categories) != 1:
        return None
    across = (times or categories)[0]
    if pc.count_distinct(rows.column(across), mode="all").as_py() < rows.num_rows:
        return None  # several rows for one place on the axis
    if times:
        return _lines(rows, across, measures[:1], is_dotted=False)
    return _bars(rows, across, measures[0]) if rows.num_rows <= _MAX_CATEGORIES else None


def _bars(rows: pa.Table, across: int, measure: int) -> Plot | None:
    shown = rows.slice(0, _MAX_BARS)
    xs = shown.column(across).to_pylist()
    ys = [_number(value) for value in shown.column(measure).to_pylist()]
    every = -(-len(ys) // 12)
    bars = [
        Bar(y or 0.0, _short(x) if place % every == 0 else "", f"{_text(x)}: {_text(y)}")
        for place, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    names = rows.column_names
    drawing = bar_chart(bars, f"{names[measure]} by {names[across]}", height=_HEIGHT)
    return Plot(drawing, names[across], (names[measure],)) if drawing else None


def _lines(rows: pa.Table, across: int, measures: list[int], *, is_dotted: bool) -> Plot | None:
    xs = rows.column(across).to_pylist()
    places = [_place(value) for value in xs]
    series = []
    for number in measures:
        ys = [_number(value) for value in rows.column(number).to_pylist()]
        points = [
            (x, y) for x, y in zip(places, ys, strict=True) if x is not None and y is not None
        ]
        series.append(points if is_dotted else sorted(points))
    if not any(series):
        return None
    known = [place for place in places if place is not None]
    low, high, steps = min(known), max(known), min(_TICKS, len(known))
    like = next(x for x in xs if x is not None)
    labels = [_tick(low, high, step / max(1, steps - 1), like) for step in range(steps)]
    names = rows.column_names
    title = f"{', '.join(names[number] for number in measures)} by {names[across]}"
    drawing = line_chart(series, labels, title, height=_HEIGHT, is_dotted=is_dotted)
    return Plot(drawing, names[across], tuple(names[number] for number in measures))


def _places(rows: pa.Table, is_such: Any) -> list[int]:
    return [place for place, field in enumerate(rows.schema) if is_such(field.type)]


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_category(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _is_key(name: str) -> bool:
    """Return whether a column has the name of a key, which is not a measure."""
    return name.lower() == "id" or name.lower().endswith("_id")


def _tick(low: float, high: float, share: float, like: Any) -> str:
    at, span = low + (high - low) * share, high - low
    if isinstance(like, datetime):
        timestamp, span = datetime.fromtimestamp(at, like.tzinfo), span / 86_400
        if span < 3:
            return f"{timestamp:%d %b %H:%M}"
        return f"{timestamp:%d %b}" if span < _SHORT_DAYS else f"{timestamp:%d %b %y}"
    if isinstance(like, date):
        day = date.fromordinal(round(at))
        return f"{day:%d %b}" if span < _SHORT_DAYS else f"{day:%d %b %y}"
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


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, float | int) else str(value)


def _short(value: object) -> str:
    text = brief(value) if isinstance(value, int | float) else str(value)
    return text if len(text) <= 12 else text[:11] + "…"
