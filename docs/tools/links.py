"""Check the links between pages, as GitHub resolves them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from docs.tools.text import slug

if TYPE_CHECKING:
    from pathlib import Path


def broken_links(root: Path) -> list[str]:
    """Return a message for every broken relative link of the README and the docs."""
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    broken = []
    for file in files:
        text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
        links = re.findall(r"\[[^\]]*\]\(<?([^)\s>]+)", text)
        for link in links + re.findall(r"\b(?:src|srcset|href)=\"([^\"]+)", text):
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (file.parent / path).resolve() if path else file
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{file.relative_to(root)}: {link} is broken")
    return broken


def anchors(file: Path) -> set[str]:
    """Return the anchors of a page: its headings and its API objects."""
    if file.suffix != ".md":
        return set()
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = {slug(each) for each in re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)}
    # The site replaces a line `::: name` by the documentation of that object, with this anchor.
    return headings | set(re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE))
