"""Docstrings as the site shows them: examples and indented blocks become code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import griffe

from docs.tools.text import as_markdown

if TYPE_CHECKING:
    from griffe import Object


class Examples(griffe.Extension):
    """Fence the doctests of every docstring; Markdown would read `>>>` as a quotation."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change a docstring once, when its object has been read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
