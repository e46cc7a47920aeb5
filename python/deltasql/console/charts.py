"""Charts as SVG, drawn on the server; the style sheet sets the colours, no script is needed."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from deltasql.console.units import brief, percent, size
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from deltasql.api.inspect.overview import HourCount
    from deltasql.api.inspect.stats import DayGrowth, PartitionStats, SizeBucket

WIDE, HALF = 960, 470
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 4, 12, 28
_SHADES = 8
_SERIES = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a bar chart."""

    value: float
    label: str
    """The text below the axis; empty if there is no space for it."""
    hint: str


def commits_per_hour(hours: Sequence[HourCount]) -> Markup:
    """Draw the number of commits in each hour."""
    bars = [
        Bar(
            each.commits,
            _hour_label(each.hour, len(hours)),
            f"{each.hour:%a %d %b, %H:00}: {many(each.commits, 'commit')}",
        )
        for each in hours
    ]
    return bar_chart(bars, "Commits per hour", height=200)


def size_histogram(buckets: Sequence[SizeBucket], *, width: int = HALF) -> Markup:
    """Draw the number of files in each size range, up to the largest file."""
    used = max((place for place, each in enumerate(buckets) if each.files), default=0)
    bars = []
    for each in buckets[: max(used + 1, 6)]:
        upto = "and more" if each.high is None else f"to {size(each.high)}"
        label = f"≥ {size(each.low)}" if each.high is None else f"< {size(each.high)}"
        hint = f"{size(each.low)} {upto}: {many(each.files, 'file')}, {size(each.bytes)}"
        bars.append(Bar(each.files, label, hint))
    return bar_chart(bars, "Files by size", height=200, width=width)


def growth(days: Sequence[DayGrowth]) -> Markup:
    """Draw the size of a table by day, starting on the day before its first data."""
    before = next((place for place, each in enumerate(days) if each.bytes), len(days)) - 1
    shown = days[max(0, min(before, len(days) - 3)) :]
    points = [(float(place), float(each.bytes)) for place, each in enumerate(shown)]
    every = max(1, -(-len(shown) // 5))
    labels = [f"{day.day:%d %b}" if place % every == 0 else "" for place, day in enumerate(shown)]
    return line_chart(
        [points], labels, "Size by day", of=size, height=200, width=HALF, is_filled=True
    )


def bar_chart(
    bars: Sequence[Bar],
    title: str,
    *,
    height: int = 200,
    width: int = WIDE,
    of: Callable[[float], str] = brief,
) -> Markup:
    """Draw values as vertical bars; `of` formats the labels of the y axis."""
    top = nice_ceiling(max((bar.value for bar in bars), default=0))
    drawn = [_grid(top, width, height, of)]
    step = (width - _LEFT - _RIGHT) / max(1, len(bars))
    gap = min(step * 0.25, 6.0)
    base = height - _BOTTOM
    for place, bar in enumerate(bars):
        x = _LEFT + place * step
        tall = (base - _TOP) * max(0.0, bar.value) / top
        # A small value is drawn with at least 2 pixels, so that it is visible.
        tall = max(tall, 2.0) if bar.value > 0 else 0.0
        drawn.append(
            _tag(
                "g",
                _tag("title", escape(bar.hint)),
                # The tooltip appears on the whole column, not only on the bar.
                _tag("rect", x=x, y=_TOP, width=step, height=base - _TOP, class_="hit"),
                _tag(
                    "rect",
                    x=x + gap / 2,
                    y=base - tall,
                    width=max(1.0, step - gap),
                    height=tall,
                    rx=min(2.0, step / 4),
                    class_="bar",
                ),
                class_="column",
            )
        )
        if bar.label:
            drawn.append(_label(bar.label, x + step / 2, height - 8))
    return _svg(drawn, title, width, height)


def line_chart(
    series: Sequence[Sequence[tuple[float, float]]],
    labels: Sequence[str],
    title: str,
    *,
    of: Callable[[float], str] = brief,
    height: int = 240,
    width: int = WIDE,
    is_filled: bool = False,
    is_dotted: bool = False,
) -> Markup:
    """Draw series of points, as lines or as dots; the labels of the x axis are evenly spaced."""
    points = [point for each in series for point in each]
    if not points:
        return Markup("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low_x, span_x = min(xs), (max(xs) - min(xs)) or 1.0
    top = nice_ceiling(max(ys))
    low = -nice_ceiling(-min(ys)) if min(ys) < 0 else 0.0
    base = height - _BOTTOM
    wide = width - _LEFT - _RIGHT

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = _LEFT + wide * (point[0] - low_x) / span_x
        return x, base - (base - _TOP) * (point[1] - low) / (top - low)

    drawn = [_grid(top, width, height, of, low)]
    for number, each in enumerate(series[:_SERIES]):
        placed = [place(point) for point in each]
        if is_dotted:
            drawn += [_tag("circle", cx=x, cy=y, r=3.5, class_=f"dot s{number}") for x, y in placed]
            continue
        path = " ".join(
            f"{'L' if step else 'M'}{x:.1f} {y:.1f}" for step, (x, y) in enumerate(placed)
        )
        if is_filled and placed:
            area = f"{path} L{placed[-1][0]:.1f} {base} L{placed[0][0]:.1f} {base} Z"
            drawn.append(_tag("path", d=area, class_=f"area s{number}"))
        drawn.append(_tag("path", d=path, class_=f"line s{number}"))
    for number, label in enumerate(labels):
        if label:
            x = _LEFT + wide * (number / max(1, len(labels) - 1))
            anchor = "start" if number == 0 else "end" if number == len(labels) - 1 else "middle"
            drawn.append(_label(label, x, height - 8, anchor))
    return _svg(drawn, title, width, height)


def heat_map(partitions: Sequence[PartitionStats], *, width: int = WIDE) -> Markup:
    """Draw partitions as cells, ordered by their values; the colour shows their size."""
    if not partitions:
        return Markup("")
    ordered = sorted(partitions, key=lambda each: each.label)
    most = max(each.bytes for each in ordered) or 1
    across = min(width // 30, max(len(ordered), width // 60))
    side = width / across
    high = min(side, 44.0)
    rows = ceil(len(ordered) / across)
    drawn = []
    for place, each in enumerate(ordered):
        shade = 0 if not each.bytes else 1 + min(_SHADES - 1, int(_SHADES * each.bytes / most))
        hint = (
            f"{each.label}: {many(each.files, 'file')}, {size(each.bytes)}"
            f" ({percent(each.share)} of the table)"
        )
        cell = _tag(
            "rect",
            x=(place % across) * side + 1.0,
            y=(place // across) * high + 1.0,
            width=side - 2,
            height=high - 2,
            rx=4,
            class_=f"heat h{shade}",
        )
        drawn.append(_tag("g", _tag("title", escape(hint)), cell))
    last = min(len(ordered), across) * side
    height = rows * high + 20
    drawn.append(_label(_end(ordered[0].label), 1.0, height - 4, "start"))
    if len(ordered) > 1:
        drawn.append(_label(_end(ordered[-1].label), max(last, 160.0), height - 4, "end"))
    return _svg(drawn, "Size of each partition", width, height)


def _end(label: str) -> str:
    return label if len(label) <= 28 else f"{label[:27]}…"


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


def nice_ceiling(value: float) -> float:
    """Return the next round number, to use as the end of an axis.

    >>> nice_ceiling(0), nice_ceiling(7), nice_ceiling(12), nice_ceiling(260)
    (1.0, 8.0, 15.0, 300.0)
    """
    if value <= 0:
        return 1.0
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


def _grid(
    top: float, width: float, height: float, of: Callable[[float], str], low: float = 0.0
) -> Markup:
    base, lines = height - _BOTTOM, []
    # No middle line if its label would be a fraction: half a commit does not exist.
    is_split = of is brief and top - low < 10 and (top - low) % 2 != 0
    for step in (0.0, 1.0) if is_split else (0.0, 0.5, 1.0):
        y = base - (base - _TOP) * step
        lines.append(_tag("line", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y, class_="grid"))
        lines.append(_label(of(low + (top - low) * step), _LEFT - 8, y + 4, "end"))
    return Markup("").join(lines)


def _label(text: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return _tag("text", escape(text), x=x, y=y, text_anchor=anchor, class_="tick")


def _svg(drawn: Sequence[Markup], title: str, width: float, height: float) -> Markup:
    return _tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        class_="chart",
        role="img",
        aria_label=title,
    )


def _tag(name: str, *inside: Markup, **attributes: object) -> Markup:
    given = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("text_anchor", "text-anchor").replace("aria_", "aria-"),
            f"{value:.1f}" if isinstance(value, float) else value,
        )
        for key, value in attributes.items()
    )
    # Tag and attribute names are constants, and the content is already escaped.
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, Markup("").join(inside))
