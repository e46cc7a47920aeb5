"""Draw rows as text: as columns that fit the terminal, or one below the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_GAP = 2
_SHORTEST = 16  # values are shortened to this width before columns are left out
_MARK = "…"
_EMPTY = ("", "NULL")


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
    leave_out: Literal["middle", "last"] = "middle",
) -> Drawing:
    """Draw one line for each row, at most `width` wide; the first line has the titles.

    Long values are shortened first. If the table is still too wide, columns are left out: those in
    the middle, or, with `leave_out="last"`, the last ones. Empty columns are left out before all
    others; with "last", even before values are shortened.

    >>> print(*as_columns(["id", "name"], [["1", "pen"]], right=[True, False], width=80).lines)
    id  name  1  pen
    """
    if width is None:
        rows = [[_one_line(cell) for cell in row] for row in rows]
        return Drawing(_drawn([titles, *rows], _widths([titles, *rows]), right))
    # A cell wider than the terminal is cut first, because measuring a long value takes long.
    lines = [[_one_line(cell)[: width + 1] for cell in row] for row in [titles, *rows]]
    natural = _widths(lines)
    places = [*range(len(titles))]
    shortest = natural if leave_out == "last" else [min(each, _SHORTEST) for each in natural]
    if _total(shortest) > width:
        places = [
            place for place in places if any(line[place] not in _EMPTY for line in lines[1:])
        ] or places
    cap = _largest_cap([natural[place] for place in places], width)
    widths = {place: min(natural[place], cap) for place in places}
    left, end = _kept(places, widths, width, from_both_ends=leave_out == "middle")
    kept = [*left, *end]
    mark = [_MARK] if len(kept) < len(places) else []
    if mark:  # the values that are shown can use the rest of the width
        cap = _largest_cap([natural[place] for place in kept], width - _GAP - len(_MARK))
        widths = {place: min(natural[place], cap) for place in kept}
    picked = [[*(line[i] for i in left), *mark, *(line[i] for i in end)] for line in lines]
    return Drawing(
        _drawn(
            picked,
            [*(widths[i] for i in left), *(1 for _ in mark), *(widths[i] for i in end)],
            [*(right[i] for i in left), *(False for _ in mark), *(right[i] for i in end)],
        ),
        hidden_columns=len(titles) - len(kept),
        is_shortened=any(widths[i] < natural[i] for i in kept),
    )


def one_below_the_other(titles: Collection[str], rows: Iterable[Iterable[str]]) -> Drawing:
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
    """Return the largest width of values at which all columns fit, at least `_SHORTEST`."""
    gaps = _GAP * (len(widths) - 1)
    low, high = _SHORTEST, max([*widths, _SHORTEST])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(each, middle) for each in widths) + gaps <= width:
            low = middle
        else:
            high = middle - 1
    return low


def _total(widths: Iterable[int]) -> int:
    found = [*widths]
    return sum(found) + _GAP * (len(found) - 1)


def _kept(
    places: Sequence[int], widths: Mapping[int, int], width: int, *, from_both_ends: bool
) -> tuple[list[int], list[int]]:
    """Return the columns that fit: those before the mark for left-out columns, and those after.

    Two columns from the start are taken for each from the end: the first ones are usually keys.
    """
    if _total(widths.values()) <= width:
        return [*places], []
    left, end = [places[0]], deque[int]()
    waiting = deque(places[1:])
    used = widths[places[0]] + _GAP + 1  # the mark is one wide
    while waiting:
        takes_last = from_both_ends and len(left) > 2 * len(end)
        place = waiting.pop() if takes_last else waiting.popleft()
        used += widths[place] + _GAP
        if used > width:
            break
        if takes_last:
            end.appendleft(place)
        else:
            left.append(place)
    return left, [*end]


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
