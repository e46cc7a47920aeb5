"""Run the command line as a process with a pseudo-terminal."""

from __future__ import annotations

import os
import subprocess
import sys


def started(
    uri: str,
    *arguments: str,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int | None = None,
) -> subprocess.Popen[str]:
    """Start `deltasql` on a catalog."""
    return subprocess.Popen(
        [sys.executable, "-m", "deltasql.cli.main", "--uri", uri, *arguments],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


def on_terminal(uri: str, *arguments: str) -> tuple[str, str]:
    """Run a command with stderr on a terminal; return its stdout and what the terminal showed."""
    ours, theirs = os.openpty()
    with started(uri, *arguments, stderr=theirs) as process:
        os.close(theirs)
        drawn = _read_all(ours)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0, drawn
    return output, drawn


def on_one_terminal(uri: str, *arguments: str) -> str:
    """Run a command on one terminal; return what the terminal showed."""
    ours, theirs = os.openpty()
    with started(uri, *arguments, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = _read_all(ours)
    assert process.returncode == 0, seen
    return seen


def _read_all(terminal: int) -> str:
    """Read a terminal until the process closes it."""
    text = b""
    while True:
        try:
            found = os.read(terminal, 65536)
        except OSError:  # the process closed the terminal
            break
        if not found:
            break
        text += found
    os.close(terminal)
    return text.decode()
