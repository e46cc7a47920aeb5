"""The guide to migration can be followed word for word."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.api.connect import close_all
from tests.cli.console import Console, steady

if TYPE_CHECKING:
    import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def test_commands_of_the_guide_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    page = (GUIDES / "migrating.md").read_text("utf-8")
    try:
        assert steady(Console(tmp_path).page(page)) == steady(page)
    finally:
        close_all()
