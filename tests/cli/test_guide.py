"""Pages with commands can be followed word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltasql.api.connect import close_all
from tests.cli.console import Console, steady

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "name",
    ["guides/cli.md", "guides/migrating.md", "guides/observability.md", "how-to/inspect.md"],
)
def test_commands_of_a_page_print_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    page = (DOCS / name).read_text("utf-8")
    try:
        assert steady(Console(tmp_path).page(page)) == steady(page)
    finally:
        close_all()
