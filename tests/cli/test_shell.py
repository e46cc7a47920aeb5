"""`deltasql shell` on a pseudo-terminal and with piped input."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Cli

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07")
PROMPT = "deltasql>"  # the space after it is sent as a cursor movement


class Terminal:
    """Types keys and reads the screen of a pseudo-terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str) -> str:
        """Read until a text appears; return everything up to its end."""
        while text not in self._seen:
            ready, _, _ = select.select([self._descriptor], [], [], 120)
            assert ready, f"{text!r} did not come, but {self._seen!r}"
            try:
                found = os.read(self._descriptor, 65536)
            except OSError:  # the process closed the terminal
                found = b""
            assert found, f"it ended without {text!r}: {self._seen!r}"
            self._seen += _ESCAPES.sub("", found.decode(errors="replace"))
        before, _, self._seen = self._seen.partition(text)
        return before + text


@contextmanager
def terminal(cli: Cli, *arguments: str) -> Iterator[Terminal]:
    """Start the shell on its own terminal; it must exit with 0 at the end."""
    process, descriptor = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 500, 0, 0))
        # This terminal does not report its cursor position. The size is set explicitly because
        # readline, once imported, leaves the size of another terminal in the environment.
        size = {"COLUMNS": "500", "LINES": "50"}
        environment = os.environ | size | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        command = [sys.executable, "-m", "deltasql.cli.main", "--uri", cli.uri, *arguments, "shell"]
        os.execve(sys.executable, command, environment)
    try:
        yield Terminal(descriptor)
        status = _ended(process, descriptor)
        process = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(descriptor)
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _ended(process: int, descriptor: int) -> int:
    """Wait until the shell exits; send Ctrl-D again, because one between two prompts is lost."""
    patience_s = time.monotonic() + 120
    while time.monotonic() < patience_s:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return status
        if select.select([descriptor], [], [], 2)[0]:
            with suppress(OSError):  # the process closed the terminal
                os.read(descriptor, 65536)
            time.sleep(0.01)
        else:
            os.write(descriptor, b"\x15\x04")  # Ctrl-U clears the line, Ctrl-D exits
    raise AssertionError("the shell did not end")


def test_commands_and_sql_run_at_one_prompt(sales: Cli) -> None:
    with terminal(sales) as user:
        user.wait_for(PROMPT)
        user.type("table list\r")
        user.wait_for("location")
        user.wait_for("/lake/default/sales")
        user.wait_for(PROMPT)
        user.type("SELECT sum(price) AS total\rFROM sales;\r")  # on two lines
        user.wait_for("7.0")
        user.wait_for(PROMPT)
        user.type("\\d sales\r")
        user.wait_for("double")
        user.wait_for(PROMPT)
        user.type("SELECT * FROM sale;\r")
        user.wait_for("Did you mean sales?")
        user.wait_for(PROMPT)
        user.type("\\f json\r")
        user.wait_for("now printed as json")
        user.wait_for(PROMPT)
        user.type("query 'SELECT count(*) AS n FROM sales@1'\r")
        user.wait_for('{"n": 2}')
        user.wait_for(PROMPT)
        user.type("undo sales\r")
        user.wait_for("[y/N]")
        user.type("y\r")
        user.wait_for('"version": 3')
        user.wait_for(PROMPT)
        user.type("\\q\r")
    assert sales.json("query", "SELECT count(*) AS n FROM sales") == [{"n": 2}]


def test_tab_completes_commands_tables_columns_and_sql(sales_in_sqlite: Cli) -> None:
    with terminal(sales_in_sqlite) as user:
        for typed, rest in (
            ("opti", "mize"),
            ("table rena", "me"),
            ("head sal", "es"),
            ("vacuum --retent", "ion-hours"),
            ("\\d sal", "es"),
            ("SELECT * FROM sal", "es"),
            ("SELECT * FROM sales WHERE pri", "ce"),
            ("SELECT * FROM sales ORD", "ER BY"),
        ):
            user.wait_for(PROMPT)
            user.type(typed)
            user.wait_for(typed[-3:])
            user.type("\t")
            user.wait_for(rest)
            user.type("\x03")  # Ctrl-C clears the line
        user.wait_for(PROMPT)
        user.type("\x04")  # Ctrl-D exits


def test_history_file_has_no_passwords(sales_in_sqlite: Cli, tmp_path: Path) -> None:
    with terminal(sales_in_sqlite) as user:
        user.wait_for(PROMPT)
        user.type("config show --uri deltasql://postgres/ann:hunter2@db/lake --changed\r")
        user.wait_for("default  source")
        user.wait_for(PROMPT)
        user.type("exit\r")
    history = tmp_path / "state" / "deltasql" / "history"
    assert "config show" in history.read_text()
    assert "hunter2" not in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    with terminal(sales_in_sqlite) as user:
        user.wait_for(PROMPT)
        user.type("\x1b[A\x1b[A")  # up twice, over `exit`
        user.wait_for("config show")
        user.type("\x03")
        user.wait_for(PROMPT)
        user.type("\x04")


def test_shell_runs_piped_lines_and_exits_with_1_on_failure(sales: Cli) -> None:
    script = "# a remark\ntable list\nSELECT count(*)\nAS n FROM sales;\n"
    result = sales("--format", "ndjson", "shell", stdin=script)
    assert '"name": "sales"' in result.stdout
    assert '{"n": 4}' in result.stdout
    assert sales("shell", stdin="nonsense\n", exit_code=1).stderr.count("No such command") == 1
    assert "Error" in sales("shell", stdin="SELECT 1 FROM nowhere;\n", exit_code=1).stderr
    assert "\\d" in sales("shell", stdin="help\nexit\nnonsense\n").stderr


def test_statements_change_tables_as_deltasql_sql_does(sales_in_sqlite: Cli) -> None:
    script = (
        "CREATE TABLE log (n BIGINT,\n  at TIMESTAMP);\n"
        "BEGIN;\nDELETE FROM sales;\nINSERT INTO log (n) SELECT count(*) FROM sales;\n"
        "SELECT count(*) AS staged FROM sales;\nROLLBACK;\n"
        "OPTIMIZE sales;\noptimize sales\nSELECT count(*) AS kept FROM sales;\n"
        "DESCRIBE HISTORY log;\n"
    )
    done = sales_in_sqlite("--format", "ndjson", "shell", stdin=script)
    assert '{"staged": 0}' in done.stdout
    assert '{"kept": 4}' in done.stdout
    assert '"operation": "CREATE TABLE"' in done.stdout
    failed = sales_in_sqlite("shell", stdin="BEGIN;\nDELETE FROM sales;\n", exit_code=1)
    assert "ended without COMMIT" in failed.stderr
    assert sales_in_sqlite.json("query", "SELECT count(*) AS n FROM sales") == [{"n": 4}]
