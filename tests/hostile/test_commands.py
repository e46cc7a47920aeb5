"""Any text as the catalog of a command: a message, never a traceback."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from deltasql.cli.main import main
from tests.hostile.texts import CRAFTED


@pytest.mark.parametrize("text", CRAFTED, ids=range(len(CRAFTED)))
def test_a_text_for_the_catalog(text: str) -> None:
    result = CliRunner().invoke(main, ["--uri", text, "tables"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
