"""The keyword DEFAULT in the rows of INSERT INTO … VALUES."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql.model.statements.tokens import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.model.statements.tokens import Word


@dataclass(frozen=True, slots=True)
class DefaultValues:
    """The occurrences of DEFAULT in the rows of VALUES, by their position in the row."""

    text: str
    rows: int = 0
    places: dict[int, list[Word]] = field(default_factory=dict)

    @property
    def complete(self) -> set[int]:
        """The positions that have DEFAULT in every row."""
        return {position for position, words in self.places.items() if len(words) == self.rows}

    def replaced(self, expression_of: Callable[[int], str]) -> str:
        """Return the query with an expression in place of each DEFAULT."""
        text = self.text
        edits = [(word, position) for position, words in self.places.items() for word in words]
        for word, position in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
            text = f"{text[: word.start]}{expression_of(position)}{text[word.end :]}"
        return text


def default_values(query: str) -> DefaultValues:
    """Find the keyword DEFAULT in a query; only VALUES can have it.

    >>> found = default_values("VALUES (1, DEFAULT), (DEFAULT, default)")
    >>> found.complete, found.replaced(lambda position: f"d{position}")
    ({1}, 'VALUES (1, d1), (d0, d1)')
    """
    words = words_of(query)
    if not words or words[0].upper != "VALUES":
        return DefaultValues(query)
    signs = ["", *(word.upper for word in words), ""]
    places: dict[int, list[Word]] = defaultdict(list)
    depth, position, rows = 0, 0, 1
    for word, before, sign, after in zip(words, signs, signs[1:], signs[2:], strict=False):
        is_whole_value = before in ("VALUES", "(", ",") and after in (",", ")", "")
        if sign == "DEFAULT" and depth <= 1 and is_whole_value:
            places[position].append(word)
        elif sign == ",":
            position = position + 1 if depth == 1 else 0 if depth == 0 else position
            rows += depth == 0
        depth += (sign == "(") - (sign == ")")
    return DefaultValues(query, rows, dict(places))
