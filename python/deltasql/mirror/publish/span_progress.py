"""How far the publishing of many versions has got."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOLD = 50  # versions published between two words about it


class SpanProgress:
    """Tells how far a span is without making it shorter: each ends with a checkpoint.

    What a listener raises is no failure of the target: it ends the span and is raised after it.
    """

    def __init__(self, on_progress: Callable[[int, int], None], before: int, total: int) -> None:
        self._on_progress, self._before, self._total = on_progress, before, total
        self._asked = 0
        self.error: Exception | None = None

    def is_set(self) -> bool:
        if self._asked and self._asked % _TOLD == 0:
            self.tell(self._before + self._asked)
        self._asked += 1
        return self.error is not None

    def tell(self, published: int) -> None:
        try:
            self._on_progress(published, max(self._total, published))
        except Exception as error:
            self.error = error
