"""Helpers that write Markdown."""

from __future__ import annotations

import ast
import re
from inspect import cleandoc, getdoc
from itertools import groupby
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |" for row in lines
    )


def as_markdown(docstring: str) -> str:
    r"""Return a docstring as Markdown, with indented blocks and doctests as code blocks.

    >>> as_markdown("Two lines:\n\n    one\n\nEnd.")
    'Two lines:\n\n```text\none\n```\n\nEnd.'
    >>> as_markdown("Do:\n\n    a = f()\n\n    g(a)\n\nEnd.")
    'Do:\n\n```python\na = f()\n\ng(a)\n```\n\nEnd.'
    """
    out = []
    for is_indented, blocks in groupby(cleandoc(docstring).split("\n\n"), _is_indented):
        if is_indented:
            code = dedent("\n\n".join(blocks))
            out.append(f"```{'python' if _is_python(code) else 'text'}\n{code}\n```")
            continue
        out += [f"```python\n{each}\n```" if each.startswith(">>>") else each for each in blocks]
    return "\n\n".join(out)


def _is_indented(block: str) -> bool:
    return block.startswith("    ")


def _is_python(code: str) -> bool:
    """Return whether a text is Python code; it must contain a call, as a single word parses too."""
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(code)))
    except SyntaxError:
        return False


def first_line(thing: object) -> str:
    """Return the first line of an object's docstring."""
    return (getdoc(thing) or "").split("\n", maxsplit=1)[0]


def slug(heading: str) -> str:
    """Return the anchor that GitHub and the site generate for a heading.

    >>> slug("A commit, step by step")
    'a-commit-step-by-step'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
