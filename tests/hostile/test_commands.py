"""Any text as the catalog URI of a command gives a message, never a traceback."""

from __future__ import annotations

from click.testing import CliRunner

from deltasql.cli.main import main
from tests.each import check_each
from tests.hostile.texts import CRAFTED


def test_any_text_as_catalog_uri_gives_an_error_message() -> None:
    check_each(CRAFTED, check_command, name=repr)


def check_command(text: str) -> None:
    result = CliRunner().invoke(main, ["--uri", text, "tables"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
