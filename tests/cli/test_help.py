"""Every command explains itself and ends with an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from deltasql.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


@pytest.mark.parametrize("path", [(), *commands(main)], ids=" ".join)
def test_help_ends_with_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    *_, head, example = result.output.rstrip().splitlines()
    assert head == "  Example:"
    assert example.startswith("    deltasql ")


def test_unknown_command_names_the_nearest() -> None:
    result = CliRunner().invoke(main, ["miror"])
    assert result.exit_code == 2
    assert "Did you mean 'mirror'?" in result.output


def test_without_a_catalog_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    result = CliRunner().invoke(main, ["mirror", "status"])
    assert result.exit_code == 2
    assert "DELTASQL_URI" in result.output


def test_our_errors_come_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["--uri", "deltasql://oracle/x", "mirror", "status"])
    assert result.exit_code == 3
    assert result.output.startswith("Error: ")
    assert "Help:" in result.output
