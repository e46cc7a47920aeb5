"""Every command explains itself and ends with an example."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

import deltasql
from deltasql.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = ("mirror", "targets")


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


@pytest.mark.parametrize(
    "path", [path for path in commands(main) if path not in (("mirror",), TARGETS)], ids=" ".join
)
def test_example_of_the_help_runs(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTASQL_URI", "deltasql://sqlite/meta.db")
    lake = tmp_path / "data" / "lake" / "sales"
    deltalake.write_deltalake(str(lake), pa.table({"id": [1]}))
    if path[0] not in ("import", "follow", "rebuild"):
        with deltasql.connect("deltasql://sqlite/meta.db") as catalog:
            catalog.import_table(str(lake))
            if path[-1] == "remove":
                catalog.mirror.add_target("sales", "backup", str(tmp_path / "backup"))
    *_, example = CliRunner().invoke(main, [*path, "--help"]).output.rstrip().splitlines()
    here = example.replace(" /data/", f" {tmp_path}/data/").replace("s3://backup", str(tmp_path))
    program, *words = shlex.split(here)
    assert program == "deltasql"
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output


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
