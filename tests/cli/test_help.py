"""Every command has a help text that ends with an example."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

import deltasql
from deltasql.cli.commands import first_sentence
from deltasql.cli.main import main
from tests.each import check_each

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
# Commands to run before an example. The table `sales` exists for every example.
READY = {
    ("mirror", "targets", "remove"): "mirror targets add sales backup HERE/backup",
    ("table", "undrop"): "table drop sales --yes",
    ("undo",): "restore sales 0 --yes",
}
NEW = ("import", "follow", "rebuild", "init")
# Commands that print nothing if the terminal is not interactive.
WITHOUT_OUTPUT = (("serve",), ("ui",), ("shell",))
# Commands that run until they are stopped.
ENDLESS = (("serve",), ("ui",))


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*above, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


def found(path: tuple[str, ...]) -> click.Command:
    command: click.Command | None = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    return command


EVERY = [(), *commands(main)]


def test_help_ends_with_an_example() -> None:
    check_each(EVERY, check_help, name=" ".join)


def check_help(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    *_, example = result.output.partition("  Example:\n")
    command, *output = example.rstrip().splitlines()
    assert command.startswith("    $ deltasql ")
    assert output or path in WITHOUT_OUTPUT
    # A page fits a terminal of 80 columns, and every summary is one whole sentence.
    assert all(len(line) <= 80 for line in output)
    sentence = first_sentence(found(path))
    assert sentence.endswith(".")
    assert len(sentence) <= 65


def test_help_groups_the_commands() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    groups = ["Tables:", "Data:", "History:", "Mirror:", "Migrate:", "Operate:", "Help:"]
    assert [line for line in lines if line in groups] == groups
    assert "  vacuum      Delete the files that no retained version of TABLE needs." in lines


def test_summaries_of_subcommands_are_not_cut() -> None:
    output = CliRunner().invoke(main, ["mirror", "--help"]).output
    assert (
        "  run         Publish missing versions continuously, until SIGTERM or Ctrl-C.\n" in output
    )


def test_every_command_and_option_has_help_and_a_reference_section() -> None:
    check_each(EVERY, check_reference, name=" ".join)


def check_reference(path: tuple[str, ...]) -> None:
    command = found(path)
    assert command.help
    unexplained = [
        each.name
        for each in command.params
        if isinstance(each, click.Option) and not (each.help or each.hidden)
    ]
    assert unexplained == []
    assert f"## {' '.join(('deltasql', *path))}\n" in REFERENCE.read_text("utf-8")


# Commands that delete or replace something, or block other writers.
DESTRUCTIVE = {
    *("cutover", "expire", "import", "migrate", "restore", "rollback", "table drop", "undo"),
    *("vacuum", "mirror adopt", "mirror reject", "mirror repair", "mirror targets remove"),
}


def test_destructive_commands_have_dry_run_and_yes() -> None:
    check_each(EVERY, check_options, name=" ".join)


def check_options(path: tuple[str, ...]) -> None:
    options = {name for each in found(path).params for name in each.opts}
    wanted = {"--yes", "--dry-run"} if " ".join(path) in DESTRUCTIVE else set()
    assert wanted <= options
    assert ("--yes" in options) == bool(wanted)


@pytest.mark.parametrize("path", [each for each in EVERY[1:] if each not in ENDLESS], ids=" ".join)
def test_help_example_runs(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTASQL_URI", "deltasql://sqlite/meta.db")
    lake = tmp_path / "data" / "lake" / "sales"
    deltalake.write_deltalake(str(lake), pa.table({"id": [1]}))
    if path[0] not in NEW:
        with deltasql.connect("deltasql://sqlite/meta.db") as catalog:
            catalog.import_table(str(lake))
            with catalog.begin() as transaction:
                transaction.write("sales", pa.table({"id": [2]}))
    if path in READY:
        line = READY[path].replace("HERE", str(tmp_path))
        assert CliRunner().invoke(main, shlex.split(line)).exit_code == 0
    example, *output = example_of(path)
    here = example.replace(" /data/", f" {tmp_path}/data/").replace("s3://backup", str(tmp_path))
    program, *arguments = shlex.split(here)
    assert program == "deltasql"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    printed = [line for line in result.output.splitlines() if line.strip()]
    for shown, line in zip(output, printed, strict=False):
        assert shown == "…" or alike(shown) == alike(line)[: len(alike(shown))]


def example_of(path: tuple[str, ...]) -> list[str]:
    """Return the command of a page's example, and the lines of its output."""
    *_, example = CliRunner().invoke(main, [*path, "--help"]).output.partition("  Example:\n")
    command, *output = [line[4:] for line in example.rstrip().splitlines()]
    return [command.removeprefix("$ "), *output]


def alike(line: str) -> str:
    """Return the words of a line, without what differs in each run: numbers, paths and times."""
    words = re.sub(r"\d+|/\S*", "", line.rstrip("…")).split()
    return " ".join(word for word in words if word.isalpha())[:12]


@pytest.mark.parametrize(("path", "first"), zip(ENDLESS, ("service", "console"), strict=True))
def test_help_example_runs_until_it_is_stopped(
    path: tuple[str, ...], first: str, tmp_path: Path
) -> None:
    example, *_ = example_of(path)
    arguments = [sys.executable, "-m", "deltasql.cli.main", *shlex.split(example)[1:]]
    uri = f"deltasql://sqlite/{tmp_path}/meta.db"
    deltasql.connect(uri, create=True).close()
    environment = os.environ | {"DELTASQL_URI": uri, "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"{first} at http" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["miror"], "'mirror'"),
        (["show"], "'config show' or 'table show'"),
        (["table", "lst"], "'list'"),
        (["mirror", "verify"], "'deltasql verify'"),
        (["mirror", "targets", "ad"], "'add'"),
        (["--format", "jsn", "table", "list"], "'json'"),
        (["table", "list", "--format", "cvs"], "'csv'"),
        (["table", "list", "--namspace", "x"], "--namespace"),
        (["config", "show", "pol"], "'pool'"),
        (["completion", "bsh"], "'bash'"),
        (["table", "create", "t", "id:bigit"], "'bigint'"),
        (["table", "create", "t", "day:date", "--partition-by", "dy"], "'day'"),
    ],
    ids=" ".join,
)
def test_wrong_input_suggests_a_similar_word(arguments: list[str], hint: str) -> None:
    result = CliRunner().invoke(main, arguments, env={"DELTASQL_URI": "deltasql://sqlite/none.db"})
    assert result.exit_code == 2
    assert "Did you mean" in result.output
    assert hint in result.output


def test_error_without_a_uri_names_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    result = CliRunner().invoke(main, ["mirror", "status"])
    assert result.exit_code == 2
    assert "DELTASQL_URI" in result.output


def test_errors_are_shown_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["--uri", "deltasql://oracle/x", "mirror", "status"])
    assert result.exit_code == 3
    assert result.output.startswith("Error: ")
    assert "Help:" in result.output
