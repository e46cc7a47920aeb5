"""Small pieces of Markdown."""

from __future__ import annotations

import re
from inspect import cleandoc, getdoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |" for row in lines
    )


def as_markdown(docstring: str) -> str:
    r"""A docstring as Markdown: indented blocks and examples as code.

    >>> as_markdown("Two lines:\n\n    one\n\nEnd.")
    'Two lines:\n\n```text\none\n```\n\nEnd.'
    """
    out = []
    for block in cleandoc(docstring).split("\n\n"):
        if block.startswith(">>>"):
            out.append(f"```python\n{block}\n```")
        elif block.startswith("    "):
            out.append("```text\n" + re.sub(r"^    ", "", block, flags=re.MULTILINE) + "\n```")
        else:
            out.append(block)
    return "\n\n".join(out)


def first_line(thing: object) -> str:
    """The sentence a docstring opens with."""
    return (getdoc(thing) or "").split("\n", maxsplit=1)[0]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it.

    >>> slug("A commit, room by room")
    'a-commit-room-by-room'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
