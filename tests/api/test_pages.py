"""The Python of the how-to pages runs, page by page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import deltasql

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
OPTIONAL = ("daft", "ibis")


@pytest.mark.parametrize("page", ["other-libraries.md", "change-feed.md", "async.md"])
def test_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    text = (PAGES / page).read_text("utf-8").replace("/tmp/lake", str(tmp_path))
    names: dict[str, object] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            needed = [name for name in OPTIONAL if f"import {name}" in block]
            if all(importlib.util.find_spec(name) for name in needed):
                exec(compile(block, page, "exec"), names)
    finally:
        deltasql.unregister()
