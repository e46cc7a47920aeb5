"""Prepare docstrings for the site: doctests and indented blocks become code blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import griffe

from docs.tools.text import as_markdown

if TYPE_CHECKING:
    from griffe import Object


class Examples(griffe.Extension):
    """Puts doctests into code fences; Markdown would read `>>>` as a quotation."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Convert the docstring of an object after griffe has loaded it."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
