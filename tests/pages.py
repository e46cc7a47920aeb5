"""Runs the code of documentation pages and compares or writes its output.

`python -m tests.pages docs/guides/migrating.md` writes the real output into a page.

A page is one session from top to bottom. Its Python blocks share their names. The output of a block
is in a `text` block after it, or in a comment after each `print`. A `console` block has commands
and their output, a `sh` block only commands. `<!-- not run: … -->` before a block gives a reason.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake

import deltasql
from deltasql.api.catalog.connect import close_all

ROOT = Path(__file__).parents[1]
POSTGRES = "deltasql://postgres/etl:${PASSWORD}@127.0.0.1:5432/lake"  # of the pages
_PLACE = re.compile(r"/srv\b|/tmp/\w+")  # the folder that a page uses
REASONS = (
    "it installs",
    "it is a whole command of make",
    "it needs a cluster",
    "it serves until it is stopped",
    "its library is not installed here",
)
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]*) -->\n)?"
    r"```(?P<language>python|console|sh)\n(?P<body>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?",
    re.DOTALL,
)
_COMMENT = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
_VARYING = (
    (re.compile(r"\b[\d,.]+ (s|bytes|B|KiB|MiB)\b"), r"N \1"),
    (re.compile(r"(?<=  )[\d,]+(?=  0\b)"), "N"),  # bytes in a table
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)"), "TIME"),
    (re.compile(r"(?i)((?:bytesRemoved|size_in_bytes)\"?[:,]?\s*)\d+"), r"\1N"),
    (re.compile(r"\{[\\]+\"avg.*?\}"), "SIZES"),
    (re.compile(r"part-\S+\.parquet"), "FILE"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "ID"),
    (re.compile(r"\b\d{8}T\d+Z"), "TIME"),
    (re.compile(r"  +"), "  "),
)


@dataclass(slots=True)
class Console:
    """Runs `export`, `deltasql` and `echo $?` commands, and Python code in one namespace."""

    folder: Path
    moved: dict[str, str] = field(default_factory=dict)  # text in the page -> real value
    names: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    _last: str = ""

    def page(self, text: str) -> str:
        """Run a page from top to bottom and return it with the real output."""
        if place := _PLACE.search(text):
            self.moved[place[0]] = str(self.folder)
        with chdir(self.folder), patch.dict(os.environ):
            os.environ.pop("DELTASQL_URI", None)
            try:
                found = _BLOCK.sub(self._block, text)
            finally:
                deltasql.telemetry.disable()
                deltasql.unregister()
                deltalake._disable_nanosecond_timestamps()
                close_all()
        self._check_exit_code("the end")
        return found

    def _block(self, match: re.Match[str]) -> str:
        body, output = match["body"], match["output"]
        if match["reason"] is not None:
            return match[0]
        if match["language"] == "python":
            printed = self._python(body, match.string.count("\n", 0, match.start("body")))
            comments = _COMMENT.findall(body)
            if comments and printed.splitlines() == comments:
                return match[0]
            block = f"```python\n{body}```"
            return f"{block}\n\n```text\n{printed}```" if printed else block
        rest = "" if output is None else f"\n\n```text\n{output}```"
        if match["language"] == "console":
            return f"```console\n{self._commands(body)}```{rest}"
        for line in filter(None, body.replace("\\\n", " ").splitlines()):
            self._command(line.partition("  #")[0])
        return match[0]

    def _commands(self, body: str) -> str:
        lines = [line for line in body.splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{self._command(line[2:])}" for line in lines)

    def _command(self, line: str) -> str:
        if line == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        self._check_exit_code(line)
        arguments = shlex.split(self._here(line))
        if arguments[0] == "export":
            name, _, value = arguments[1].partition("=")
            os.environ[name] = value
            return ""
        assert arguments[0] == "deltasql", line
        # Late imports: pages without commands also run in environments without click.
        from click.testing import CliRunner

        from deltasql.cli.main import main

        result = CliRunner().invoke(main, arguments[1:])
        if not isinstance(result.exception, SystemExit | None):
            raise result.exception
        self.code = result.exit_code
        self._last = result.output
        return self._there(result.output)

    def _check_exit_code(self, line: str) -> None:
        assert self.code == 0, f"exit code {self.code} before {line!r}: {self._last}"

    def _python(self, body: str, above: int) -> str:
        with redirect_stdout(
            io.StringIO()
        ) as printed:  # so that an error names the line of the page
            exec(compile("\n" * above + self._here(body), "page", "exec"), self.names)
        return self._there(printed.getvalue())

    def _here(self, text: str) -> str:
        for shown, actual in self.moved.items():
            text = text.replace(shown, actual)
        return text

    def _there(self, text: str) -> str:
        for shown, actual in self.moved.items():
            text = text.replace(actual, shown)
        return text


def written_pages() -> list[Path]:
    """Return every page that is not generated; those of `docs/reference` are."""
    folders = ("guides", "how-to", "explanation")
    pages = [page for each in folders for page in sorted((ROOT / "docs" / each).rglob("*.md"))]
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *pages]


def place(text: str) -> str | None:
    """Return the folder that the code of a page uses, if any of it runs."""
    ran = _BLOCK.sub(lambda match: match[0] if match["reason"] is None else "", text)
    found = _PLACE.search(ran)
    return None if found is None else found[0]


def reasons(text: str) -> list[str]:
    """Return the reasons why blocks of a page are not run."""
    return [match["reason"] for match in _BLOCK.finditer(text) if match["reason"] is not None]


def without_varying_values(text: str) -> str:
    """Replace values that differ between runs: times, sizes and file names."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as temporary:
            done = Console(Path(temporary)).page(path.read_text("utf-8"))
        path.write_text(done, "utf-8")
