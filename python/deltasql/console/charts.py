"""Charts as SVG, drawn on the server; the style sheet sets the colours, no script is needed."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2, log10
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from deltasql.console.units import brief, percent, size
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from deltasql.api.inspect.overview import HourCount
    from deltasql.api.inspect.stats import DayGrowth, PartitionStats, SizeBucket

_TOP, _BOTTOM = 12, 28
_SHADES = 8
_SERIES = 4
# A narrow chart shows only about this many labels below its axis.
_NARROW_LABELS = 4
_FEW_PARTITIONS = 10
_SAME_WIDTH = "non-scaling-stroke"
_ATTRIBUTES = {
    "text_anchor": "text-anchor",
    "aria_label": "aria-label",
    "vector_effect": "vector-effect",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a bar chart."""

    value: float
    label: str
    """The text below the axis; empty if there is no space for it."""
    hint: str


def commits_per_hour(hours: Sequence[HourCount]) -> Markup:
    """Draw the number of commits in each hour; nothing if there are none."""
    bars = [
        Bar(
            each.commits,
            _hour_label(each.hour, len(hours)),
            f"{each.hour:%a %d %b, %H:00} UTC: {many(each.commits, 'commit')}",
        )
        for each in hours
    ]
    return bar_chart(bars, "Commits per hour", height=200)


def size_histogram(buckets: Sequence[SizeBucket]) -> Markup:
    """Draw the number of files in each size range, up to the largest file."""
    used = max((place for place, each in enumerate(buckets) if each.files), default=0)
    bars = []
    for each in buckets[: max(used + 1, 6)]:
        upto = "and more" if each.high is None else f"to {size(each.high)}"
        label = f"≥ {size(each.low)}" if each.high is None else f"< {size(each.high)}"
        hint = f"{size(each.low)} {upto}: {many(each.files, 'file')}, {size(each.bytes)}"
        bars.append(Bar(each.files, label, hint))
    return bar_chart(bars, "Files by size", height=200)


def growth(days: Sequence[DayGrowth], since: datetime) -> Markup:
    """Draw the size of a table by day, from the day of its first commit on."""
    shown = [each for each in days if each.day >= since.date()]
    if not any(each.bytes for each in shown):
        return Markup("")
    points = [(float(place), float(each.bytes)) for place, each in enumerate(shown)]
    every = max(1, -(-len(shown) // 5))
    labels = [f"{day.day:%d %b}" if place % every == 0 else "" for place, day in enumerate(shown)]
    return line_chart([points], labels, "Size by day", of=size, height=200, is_filled=True)


def bar_chart(
    bars: Sequence[Bar],
    title: str,
    *,
    height: int = 200,
    of: Callable[[float], str] = brief,
) -> Markup:
    """Draw values as vertical bars; `of` formats the labels of the y axis.

    Widths are percentages, so that the chart fills its card and its text keeps its size.
    """
    if not any(bar.value > 0 for bar in bars):
        return Markup("")
    top = axis_end(max(bar.value for bar in bars), of)
    drawn = [_grid(top, height, of)]
    step, base = 100 / len(bars), height - _BOTTOM
    every = -(-sum(1 for bar in bars if bar.label) // _NARROW_LABELS)
    labelled = 0
    for place, bar in enumerate(bars):
        # A small value is drawn with at least 2 pixels, so that it is visible.
        tall = max((base - _TOP) * bar.value / top, 2.0) if bar.value > 0 else 0.0
        drawn.append(
            _tag(
                "g",
                _tag("title", escape(bar.hint)),
                # The tooltip appears on the whole column, not only on the bar.
                _tag(
                    "rect",
                    x=_at(place * step),
                    y=_TOP,
                    width=_at(step),
                    height=base - _TOP,
                    class_="hit",
                ),
                _tag(
                    "rect",
                    x=_at((place + 0.12) * step),
                    y=base - tall,
                    width=_at(step * 0.76),
                    height=tall,
                    class_="bar",
                ),
                class_="column",
            )
        )
        if bar.label:
            kind = "tick" if labelled % every == 0 else "tick extra"
            drawn.append(_label(bar.label, _at((place + 0.5) * step), height - 8, kind=kind))
            labelled += 1
    return _svg(drawn, title, height)


def line_chart(
    series: Sequence[Sequence[tuple[float, float]]],
    labels: Sequence[str],
    title: str,
    *,
    of: Callable[[float], str] = brief,
    height: int = 240,
    is_filled: bool = False,
    is_dotted: bool = False,
) -> Markup:
    """Draw series of points, as lines or as dots; the labels of the x axis are evenly spaced."""
    points = [point for each in series for point in each]
    if not points:
        return Markup("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low_x, span_x = min(xs), max(xs) - min(xs)
    top = axis_end(max(ys), of)
    low = -axis_end(-min(ys), of) if min(ys) < 0 else 0.0
    base = height - _BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = 100 * (point[0] - low_x) / span_x if span_x else 50.0
        return x, base - (base - _TOP) * (point[1] - low) / (top - low)

    drawn, lines = [_grid(top, height, of, low)], []
    for number, each in enumerate(series[:_SERIES]):
        placed = [place(point) for point in each]
        if is_dotted or len(placed) == 1:
            drawn += [
                _tag("circle", cx=_at(x), cy=y, r=3.5, class_=f"dot s{number}") for x, y in placed
            ]
            continue
        path = " ".join(
            f"{'L' if step else 'M'}{x:.2f} {y:.1f}" for step, (x, y) in enumerate(placed)
        )
        if is_filled and placed:
            area = f"{path} L{placed[-1][0]:.2f} {base} L{placed[0][0]:.2f} {base} Z"
            lines.append(_tag("path", d=area, class_=f"area s{number}"))
        lines.append(_tag("path", d=path, class_=f"line s{number}", vector_effect=_SAME_WIDTH))
    if lines:  # the inner drawing is stretched to the width of the card
        drawn.append(
            _tag(
                "svg",
                *lines,
                width="100%",
                height=height,
                viewBox=f"0 0 100 {height}",
                preserveAspectRatio="none",
            )
        )
    every = -(-sum(1 for label in labels if label) // _NARROW_LABELS)
    labelled = 0
    for number, label in enumerate(labels):
        if label:
            share = number / (len(labels) - 1) if len(labels) > 1 else 0.5
            anchor = "start" if share == 0 else "end" if share == 1 else "middle"
            kind = "tick" if labelled % every == 0 else "tick extra"
            drawn.append(_label(label, _at(100 * share), height - 8, anchor, kind))
            labelled += 1
    return _svg(drawn, title, height)


def heat_map(partitions: Sequence[PartitionStats]) -> Markup:
    """Show the sizes of partitions: a few as bars with names, many as cells in shades."""
    ordered = sorted(partitions, key=lambda each: each.label)
    most = max((each.bytes for each in ordered), default=0) or 1
    if len(ordered) <= _FEW_PARTITIONS:
        rows = [
            _tag(
                "tr",
                _tag("th", escape(_name(each, is_short=True)), scope="row"),
                _tag("td", meter(each.bytes / most, _partition_hint(each)), class_="wide"),
                _tag("td", escape(size(each.bytes)), class_="num"),
                _tag("td", escape(many(each.files, "file")), class_="num"),
            )
            for each in ordered
        ]
        return _tag("table", _tag("tbody", *rows), class_="bars") if rows else Markup("")
    cells = []
    for each in ordered:
        shade = 0 if not each.bytes else 1 + min(_SHADES - 1, int(_SHADES * each.bytes / most))
        hint = _partition_hint(each)
        cells.append(_tag("li", class_=f"h{shade}", title=hint, aria_label=hint))
    ends = [_tag("span", escape(_name(each, is_short=True))) for each in (ordered[0], ordered[-1])]
    return _tag("ol", *cells, class_="heat") + _tag("p", *ends, class_="heat-ends")


def _name(partition: PartitionStats, *, is_short: bool = False) -> str:
    values = partition.values.items()
    if is_short and len(values) == 1:  # the title of the chart names the column
        return next("NULL" if value is None else value for _, value in values)
    return "/".join(f"{name}={'NULL' if value is None else value}" for name, value in values)


def _partition_hint(partition: PartitionStats) -> str:
    return (
        f"{_name(partition)}: {many(partition.files, 'file')}, {size(partition.bytes)}"
        f" ({percent(partition.share)} of the table)"
    )


def meter(share: float, title: str) -> Markup:
    """Draw a fraction from 0 to 1 as a thin horizontal bar."""
    filled = max(0.0, min(1.0, share)) * 100
    parts = [
        _tag("title", escape(title)),
        _tag("rect", x=0, y=0, width=100, height=6, rx=3, class_="meter-back"),
    ]
    if filled:
        parts.append(
            _tag("rect", x=0, y=0, width=max(filled, 3), height=6, rx=3, class_="meter-fill")
        )
    return _tag(
        "svg", *parts, viewBox="0 0 100 6", class_="meter", role="img", preserveAspectRatio="none"
    )


def axis_end(value: float, of: Callable[[float], str] = brief) -> float:
    """Return the next round number as the end of an axis; for sizes, it is round in binary units.

    >>> axis_end(0), axis_end(7), axis_end(12), axis_end(260)
    (1.0, 8.0, 15.0, 300.0)
    >>> axis_end(5_000_000, size) / 2**20
    6.0
    """
    if value <= 0:
        return 1.0
    if of is size:
        unit = 2.0 ** floor(log2(value))
        return next(step * unit for step in (1, 1.5, 2) if value <= step * unit)
    unit = 10.0 ** floor(log10(value))
    for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10):
        if value <= step * unit * (1 + 1e-9):
            return step * unit
    return 10 * unit


def _hour_label(hour: datetime, hours: int) -> str:
    """Return the label of an hour: every third hour, or only days if the range is longer."""
    if hours <= 72:
        return f"{hour:%H:00}" if hour.hour % 3 == 0 else ""
    every = max(1, hours // 24 // 8)
    return f"{hour:%d %b}" if hour.hour == 0 and hour.toordinal() % every == 0 else ""


def _grid(top: float, height: float, of: Callable[[float], str], low: float = 0.0) -> Markup:
    base, lines = height - _BOTTOM, []
    # Omit the middle line if its label would be a fraction, because there are no half commits.
    is_split = of is brief and top - low < 10 and (top - low) % 2 != 0
    for step in (0.0, 1.0) if is_split else (0.0, 0.5, 1.0):
        y = base - (base - _TOP) * step
        lines.append(_tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
        lines.append(_label(of(low + (top - low) * step), -8, y + 4, "end"))
    return Markup("").join(lines)


def _at(percentage: float) -> str:
    return f"{percentage:.3f}%"


def _label(
    text: str, x: float | str, y: float, anchor: str = "middle", kind: str = "tick"
) -> Markup:
    return _tag("text", escape(text), x=x, y=y, text_anchor=anchor, class_=kind)


def _svg(drawn: Sequence[Markup], title: str, height: float) -> Markup:
    # The style sheet keeps space at the left for the labels of the y axis.
    drawing = _tag(
        "svg", *drawn, width="100%", height=height, class_="chart", role="img", aria_label=title
    )
    return _tag("div", drawing, class_="plot")


def _tag(name: str, *inside: Markup, **attributes: object) -> Markup:
    given = Markup("").join(
        Markup(' {}="{}"').format(
            _ATTRIBUTES.get(key, key).rstrip("_"),
            f"{value:.1f}" if isinstance(value, float) else value,
        )
        for key, value in attributes.items()
    )
    # Tag and attribute names are constants, and the content is already escaped.
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, Markup("").join(inside))
