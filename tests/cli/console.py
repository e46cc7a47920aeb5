"""Pages whose commands run: what they print is put into the page, or compared with it.

`python -m tests.cli.console docs/guides/migrating.md` writes the real output into a page.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from deltasql.cli.main import main

PLACE = "/srv"
# A Python block may be followed by what it prints.
_BLOCK = re.compile(
    r"```(?P<language>python|console)\n(?P<body>.*?)```(?:\n\n```text\n(?P<told>.*?)```)?",
    re.DOTALL,
)
_VARYING = (
    (re.compile(r"\b[\d,.]+ (s|bytes)\b"), r"N \1"),
    (re.compile(r"(?<=  )[\d,]+(?=  0\b)"), "N"),  # bytes in a table
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+\+00:00"), "TIME"),
    (re.compile(r"(?i)((?:bytesRemoved|size_in_bytes)\"?[:,]?\s*)\d+"), r"\1N"),
    (re.compile(r"\{[\\]+\"avg.*?\}"), "SIZES"),
    (re.compile(r"part-\S+\.parquet"), "FILE"),
    (re.compile(r"  +"), "  "),
)


@dataclass(slots=True)
class Console:
    """A shell that knows `export`, `deltasql` and `echo $?`, and a Python beside it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    code: int = 0

    def page(self, text: str) -> str:
        """Run a page from top to bottom; return it with what was printed."""
        found = _BLOCK.sub(self._block, text)
        self._refuse_unseen("the end")
        return found

    def _block(self, match: re.Match[str]) -> str:
        body = match["body"]
        if match["language"] == "console":
            return f"```console\n{self._commands(body)}```" + self._rest(match)
        printed = self._python(body)
        block = f"```python\n{body}```"
        return f"{block}\n\n```text\n{printed}```" if printed else block

    def _rest(self, match: re.Match[str]) -> str:
        return "" if match["told"] is None else f"\n\n```text\n{match['told']}```"

    def _commands(self, body: str) -> str:
        lines = [line for line in body.splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{self._command(line[2:])}" for line in lines)

    def _command(self, line: str) -> str:
        if line == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        self._refuse_unseen(line)
        words = shlex.split(self._here(line))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.env[name] = value
            return ""
        assert words[0] == "deltasql", line
        result = CliRunner().invoke(main, words[1:], env=self.env)
        if not isinstance(result.exception, SystemExit | None):
            raise result.exception
        self.code = result.exit_code
        self._last = result.output
        return self._there(result.output)

    def _refuse_unseen(self, line: str) -> None:
        assert self.code == 0, f"exit code {self.code} before {line!r}: {self._last}"

    _last: str = ""

    def _python(self, body: str) -> str:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(self._here(body), "page", "exec"), self.names)
        return self._there(printed.getvalue())

    def _here(self, text: str) -> str:
        return text.replace(PLACE, str(self.folder))

    def _there(self, text: str) -> str:
        return text.replace(str(self.folder), PLACE)


def steady(text: str) -> str:
    """Leave out what is never the same twice: times, sizes and names of files."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as temporary:
            path.write_text(Console(Path(temporary)).page(path.read_text("utf-8")), "utf-8")
