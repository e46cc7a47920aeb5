"""Sets of file ids as sorted, disjoint ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ranges:
    """Closed ranges of file ids.

    >>> Ranges([(1, 3), (4, 6), (9, 9)]).intersect(Ranges([(5, 9)]))
    Ranges([(5, 6), (9, 9)])
    """

    def __init__(self, ranges: Iterable[tuple[Any, ...]]) -> None:
        merged: list[tuple[int, int]] = []
        for first, last in sorted((row[0], row[1]) for row in ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self._ranges = merged

    def __repr__(self) -> str:
        return f"Ranges({self._ranges})"

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def count(self) -> int:
        """The number of ids in the ranges."""
        return sum(last - first + 1 for first, last in self._ranges)

    def columns(self) -> tuple[list[int], list[int]]:
        """Return the first ids and the last ids of the ranges as two lists."""
        return [first for first, _ in self._ranges], [last for _, last in self._ranges]

    def add_outside(self, first: int, end: int, next_id: int) -> Ranges:
        """Return the ranges plus all ids below `first`, and those from `end` to before `next_id`.

        >>> Ranges([(5, 6)]).add_outside(4, 8, 10)
        Ranges([(1, 3), (5, 6), (8, 9)])
        """
        extra = [(1, first - 1)] if first > 1 else []
        if end < next_id:
            extra.append((end, next_id - 1))
        return Ranges([*self._ranges, *extra])

    def intersect(self, other: Ranges) -> Ranges:
        """Return the ids that are in both sets."""
        out, mine, theirs = [], list(self._ranges), list(other._ranges)
        i = j = 0
        while i < len(mine) and j < len(theirs):
            first = max(mine[i][0], theirs[j][0])
            last = min(mine[i][1], theirs[j][1])
            if first <= last:
                out.append((first, last))
            if mine[i][1] < theirs[j][1]:
                i += 1
            else:
                j += 1
        return Ranges(out)
