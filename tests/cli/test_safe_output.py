"""Errors are short; output shows no secrets and sends no control sequences to a terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.cli.context import TextFormatter
from deltasql.cli.history.watch import lag_text
from deltasql.cli.output import FORMATS, Output

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


def test_unreadable_file_is_reported_without_a_traceback(cli: Cli, tmp_path: Path) -> None:
    output = cli("table", "create", "a", "--schema", f"{tmp_path}/none.json", exit_code=3).stderr
    assert output.startswith("Error: ")
    assert "none.json" in output
    output = cli("table", "create", "a", "--schema", str(tmp_path), exit_code=3).stderr
    assert "Is a directory" in output
    assert "Traceback" not in output


def test_internal_error_shows_a_traceback_only_with_verbose(sales: Cli, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_bytes(b"SELECT '\xff'")
    output = sales("query", "-f", str(file), exit_code=3).stderr
    assert output.startswith("Error: internal error: UnicodeDecodeError")
    assert "Traceback" not in output
    for arguments in (["-v", "query", "-f", str(file)], ["query", "-f", str(file), "-v"]):
        assert "Traceback" in sales(*arguments, exit_code=3).stderr


def test_shell_continues_after_any_error(sales: Cli, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_bytes(b"SELECT '\xff'")
    script = f"query -f {file}\nquery 'open\nSELECT DATE '12000-01-01' AS day, 7 AS n;\n"
    result = sales("--format", "ndjson", "shell", stdin=script, exit_code=1)
    assert "internal error" in result.stderr
    assert "No closing quotation" in result.stderr
    assert '{"day": "12000-01-01", "n": 7}' in result.stdout


def test_dates_outside_pythons_range_are_printed_as_text(sales: Cli) -> None:
    far = "DATE '12000-01-01'"
    sql = f"SELECT {far} AS d, [{far}] AS l, {{'x': {far}, 'n': 1}} AS s, {far} + 1 AS e"
    (row,) = sales.json("query", sql)
    assert row["d"] == "12000-01-01"
    assert (row["l"], row["s"]) == (["12000-01-01"], {"x": "12000-01-01", "n": 1})
    assert row["e"] == "12000-01-02"


def test_text_logs_hide_secrets() -> None:
    try:
        raise ValueError("postgres://ann:hunter2@db/lake")
    except ValueError:
        found = sys.exc_info()
    text = "password=hunter3"
    record = logging.LogRecord("deltasql", logging.ERROR, "", 0, text, None, found)
    output = TextFormatter().format(record)
    assert "ERROR deltasql: password=***" in output
    assert "Traceback" in output
    assert "hunter" not in output


@pytest.mark.parametrize("arguments", [("-vv", "config", "show"), ("config", "show", "-v", "-v")])
def test_verbose_shows_only_deltasql_logs(arguments: tuple[str, ...]) -> None:
    code = (
        "import logging, sys\n"
        "from deltasql.cli.main import main\n"
        f"main.main({[*arguments]!r}, 'deltasql', standalone_mode=False)\n"
        "logging.getLogger('deltasql.x').debug('ours token=abc')\n"
        "logging.getLogger('urllib3').info('theirs')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "DEBUG deltasql.x: ours token=***" in run.stderr
    assert "theirs" not in run.stderr


def test_log_format_can_follow_the_command() -> None:
    code = (
        "import logging\n"
        "from deltasql.cli.main import main\n"
        "arguments = ['config', 'show', '--log-format', 'json']\n"
        "main.main(arguments, 'deltasql', standalone_mode=False)\n"
        "logging.getLogger('deltasql.x').warning('hello')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"event": "hello"' in run.stderr


EVIL = "\x1b[2J\x9bx"


@pytest.mark.parametrize("format_", FORMATS)
def test_control_sequences_are_escaped_on_a_terminal(
    format_: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = pa.table({"evil": [EVIL]}).to_reader()
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        patch.setenv("TERM", "dumb")
        Output(format_, color=False).rows([{"evil": EVIL}], ("evil",))
        Output(format_, color=False).record({"evil": EVIL})
        Output(format_, color=False).query_result(stdin, 10)
    shown = capsys.readouterr().out
    assert shown.count("evil") >= 3
    assert not {*shown} & {"\x1b", "\x9b"}


def test_values_are_not_escaped_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for format_ in ("csv", "markdown"):
        Output(format_).rows([{"evil": EVIL}], ("evil",))
        Output(format_, color=False).query_result(pa.table({"evil": [EVIL]}).to_reader(), 10)
    assert capsys.readouterr().out.count(EVIL) == 4


def test_watch_escapes_control_sequences_in_names() -> None:
    from rich.console import Console

    from deltasql.api.inspect.history import RecentCommit
    from deltasql.cli.history.watch import _screen
    from deltasql.model.clock import from_ms
    from deltasql.model.row_changes import RowChanges

    assert lag_text([]) == "mirror: everything is published"
    rows = RowChanges(None, None, None)
    commit = RecentCommit("a\x1b[2J", 1, from_ms(0), "\x1b]0;x\x07", {}, rows, "", 1)
    console = Console(force_terminal=False, width=200)
    with console.capture() as captured:
        console.print(_screen([commit], []))
    assert "\\x1b[2J" in captured.get()
    assert "\x1b" not in captured.get()


def test_error_names_an_unknown_console_host(cli: Cli) -> None:
    cli("init")
    error = cli("ui", "--host", "nope.invalid", exit_code=3).stderr
    assert "nope.invalid is not an address of this machine: choose another --host" in error
