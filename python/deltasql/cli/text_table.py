"""Draw rows as text: as columns that fit the terminal, or one below the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = 2
_SHORTEST = 16  # values are shortened to this width before columns are left out
_MARK = "…"


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lines of text, and what was left out to fit the width."""

    lines: list[str]
    headings: frozenset[int] = frozenset({0})
    """The numbers of the lines that have titles or start a row."""
    hidden_columns: int = 0
    is_shortened: bool = False

    def hint(self, columns: int) -> str:
        """Return how to see what was left out; an empty string if nothing was."""
        if self.hidden_columns:
            shown = columns - self.hidden_columns
            return f"{shown} of {columns} columns are shown; --wide shows all, one below the other"
        return "long values are shortened; --wide shows them whole" if self.is_shortened else ""


def as_columns(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
    width: int | None,
) -> Drawing:
    """Draw one line for each row, at most `width` wide; the first line has the titles.

    Long values are shortened first. If that is not enough, columns in the middle are left out.

    >>> print(*as_columns(["id", "name"], [["1", "pen"]], right=[True, False], width=80).lines)
    id  name  1  pen
    """
    if width is None:
        rows = [[_one_line(cell) for cell in row] for row in rows]
        return Drawing(_drawn([titles, *rows], _widths([titles, *rows]), right))
    # A cell wider than the terminal is cut first, because measuring a long value takes long.
    lines = [[_one_line(cell)[: width + 1] for cell in row] for row in [titles, *rows]]
    natural = _widths(lines)
    cap = _largest_cap(natural, width)
    widths = [min(each, cap) for each in natural]
    kept = _kept(widths, width)
    if len(kept) == len(widths):
        drawn = _drawn(lines, widths, right)
        return Drawing(drawn, is_shortened=widths != natural)
    half = (len(kept) + 1) // 2
    picked = [
        [*(line[i] for i in kept[:half]), _MARK, *(line[i] for i in kept[half:])] for line in lines
    ]
    return Drawing(
        _drawn(
            picked,
            [*(widths[i] for i in kept[:half]), 1, *(widths[i] for i in kept[half:])],
            [*(right[i] for i in kept[:half]), False, *(right[i] for i in kept[half:])],
        ),
        hidden_columns=len(widths) - len(kept),
        is_shortened=any(widths[i] < natural[i] for i in kept),
    )


def one_below_the_other(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Drawing:
    """Draw one line for each value, below a line with the number of the row.

    >>> print(*one_below_the_other(["id", "name"], [["1", "pen"]]).lines, sep=" / ")
    -- row 1 -- / id    1 / name  pen
    """
    margin = max(map(cell_width, titles), default=0) + _GAP
    lines: list[str] = []
    headings = set()
    for number, row in enumerate(rows, 1):
        headings.add(len(lines))
        lines.append(f"-- row {number} --")
        for title, cell in zip(titles, row, strict=True):
            first, *more = cell.split("\n")
            lines.append((_padded(title, margin, right=False) + first).rstrip())
            lines += [" " * margin + each for each in more]
    return Drawing(lines, frozenset(headings))


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> cell_width("pen"), cell_width("ペン")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 1 + (east_asian_width(each) in "WF") for each in text)


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t") if "\n" in text or "\t" in text else text


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_width, cells)) for cells in zip(*lines, strict=True)]


def _largest_cap(widths: Sequence[int], width: int) -> int:
    """Return the largest width of a value with which all columns fit, at least `_SHORTEST`."""
    gaps = _GAP * (len(widths) - 1)
    low, high = _SHORTEST, max([*widths, _SHORTEST])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(each, middle) for each in widths) + gaps <= width:
            low = middle
        else:
            high = middle - 1
    return low


def _kept(widths: Sequence[int], width: int) -> list[int]:
    """Return the columns that fit: all of them, or some from both ends."""
    if sum(widths) + _GAP * (len(widths) - 1) <= width:
        return [*range(len(widths))]
    left: list[int] = [0]
    right: list[int] = []
    used = widths[0] + _GAP + 1  # the mark in the middle is one wide
    for taken in range(1, len(widths)):
        from_end = taken % 2 == 1
        place = len(widths) - 1 - len(right) if from_end else len(left)
        used += widths[place] + _GAP
        if used > width:
            break
        (right if from_end else left).append(place)
    return [*left, *reversed(right)]


def _drawn(
    lines: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]
) -> list[str]:
    drawn = []
    for line in lines:
        cells = zip(line, widths, right, strict=True)
        padded = [_padded(_cut(cell, most), most, right=side) for cell, most, side in cells]
        drawn.append((" " * _GAP).join(padded).rstrip())
    return drawn


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    while cell_width(text) > width - 1:
        text = text[: min(len(text) - 1, width - 1)]
    return text + _MARK


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_width(text))
    return space + text if right else text + space
