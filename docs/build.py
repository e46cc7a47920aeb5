"""Write `docs/reference/*.md` from the code, and check that links between pages resolve.

python docs/build.py            write the pages, check the links
python docs/build.py --check    write nothing; exit 1 when a page is stale or a link is broken
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import fields
from inspect import cleandoc, getdoc
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import click
from pydantic import BaseModel

import deltasql.config
import deltasql.exceptions
import deltasql.uri
from deltasql.cli.main import main as cli
from deltasql.config import Config
from deltasql.config.problems import allowed_values
from deltasql.exceptions import TxnLogError
from deltasql.telemetry import METRICS
from deltasql.uri import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
EXIT_CODES = (
    ("0", "all is well"),
    ("1", "something is wrong with what was looked at, or a question was answered with no"),
    ("2", "wrong usage: an option, an argument or a name that does not exist"),
    ("3", "the command failed; stderr says why and what to do"),
    ("130", "ended by Ctrl-C"),
)
NOTICE = "<!-- Written by docs/build.py from the code; edit the code, then run `make docs`. -->"


def main(arguments: list[str]) -> int:
    """Build or check; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(description="Build the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check = parser.parse_args(arguments).check
    problems = []
    for name, text in pages().items():
        path = ROOT / "docs" / "reference" / name
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            problems.append(f"{path.relative_to(ROOT)} is stale: run `make docs`")
        elif not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    problems += broken_links(ROOT)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def pages() -> dict[str, str]:
    """The text of every generated page by file name."""
    bodies = {
        "errors.md": errors_page(),
        "uri.md": uri_page(),
        "config.md": config_page(),
        "metrics.md": metrics_page(),
        "cli.md": cli_page(),
    }
    return {name: f"{NOTICE}\n\n{body.strip()}\n" for name, body in bodies.items()}


def errors_page() -> str:
    """Every exception with its fields, meaning and remedy."""
    parts = ["# Errors", markdown(deltasql.exceptions)]
    for name in deltasql.exceptions.__all__:
        cls = getattr(deltasql.exceptions, name)
        if not (isinstance(cls, type) and issubclass(cls, TxnLogError)):
            continue
        names = [f"`{each.name}`" for each in fields(cls) if each.name not in ("message", "help")]
        parts.append(f"## {name}\n\n{first_line(cls)}")
        facts = [f"- fields: {', '.join(names) or 'none'}"]
        if cls is not TxnLogError:
            facts.insert(0, f"- a kind of `{cls.__bases__[0].__name__}`")
        facts.append(f"- says: {cls.default_message}")
        facts.append(f"- help: {cls.default_help}")
        parts.append("\n".join(facts))
    return "\n\n".join(parts)


def uri_page() -> str:
    """The grammar and its parameters."""
    rows = [
        (f"`{each.name}`", each.doc, each.allowed, ", ".join(each.backends))
        for each in PARAMETERS.values()
    ]
    heads = ("parameter", "meaning", "allowed", "backends")
    return "\n\n".join(
        ["# URIs", markdown(deltasql.uri), "## Parameters", table(heads, rows)],
    )


def config_page() -> str:
    """Every setting with its variable, default and range."""
    parts = ["# Configuration", markdown(deltasql.config)]
    defaults = Config()
    for name, found in Config.model_fields.items():
        section = found.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            parts.append(
                f"## {name}\n\n{found.description} Variable: `DELTASQL_{name.upper()}__…`."
            )
            continue
        rows = []
        for key, field in section.model_fields.items():
            default = getattr(getattr(defaults, name), key)
            shown = (
                "unset" if default in (None, {}) else f"`{str(default).replace('True', 'true')}`"
            )
            variable = f"`DELTASQL_{name.upper()}__{key.upper()}`"
            rows.append(
                (f"`{key}`", shown, allowed_values(field), str(field.description), variable)
            )
        heads = ("key", "default", "allowed", "meaning", "variable")
        parts.append(f"## {name}\n\n{first_line(section)}\n\n{table(heads, rows)}")
    return "\n\n".join(parts)


def metrics_page() -> str:
    """Every metric with its kind and labels."""
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(map("`{}`".format, each.labels)), each.doc)
        for each in METRICS.values()
    ]
    intro = (
        "`deltasql.telemetry.enable_prometheus()` and `enable_opentelemetry()` publish these; "
        "nothing is measured before one of them is called."
    )
    return f"# Metrics\n\n{intro}\n\n{table(('metric', 'kind', 'labels', 'meaning'), rows)}"


def cli_page() -> str:
    """Every command with the help that it prints."""
    intro = (
        "Every command takes its catalog from `--uri`, `--catalog` (a name in the configuration) "
        "or `DELTASQL_URI`. The common options `--uri`, `--catalog`, `--format` and `--no-color` "
        "are also taken behind the command. Data goes to stdout, talk to stderr.\n\n"
        + table(("exit code", "meaning"), EXIT_CODES)
        + "\n\n`docs/guides/cli.md` is a tour of the commands."
    )
    parts = ["# Command line", intro]
    for words, command in commands(("deltasql",), cli):
        context = click.Context(
            command,
            info_name=" ".join(words),
            terminal_width=100,
            help_option_names=["-h", "--help"],
        )
        parts.append(f"## {' '.join(words)}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)


def commands(
    words: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all below it, by the words that call them."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            each = command.get_command(context, name)
            assert each is not None, name
            yield from commands((*words, name), each)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |" for row in lines
    )


def markdown(module: ModuleType) -> str:
    """A module's docstring, its indented blocks and examples as code."""
    out = []
    for block in cleandoc(module.__doc__ or "").split("\n\n"):
        if block.startswith(">>>"):
            out.append(f"```python\n{block}\n```")
        elif block.startswith("    "):
            out.append("```text\n" + re.sub(r"^    ", "", block, flags=re.MULTILINE) + "\n```")
        else:
            out.append(block)
    return "\n\n".join(out)


def first_line(thing: object) -> str:
    """The sentence a docstring opens with."""
    return (getdoc(thing) or "").split("\n", maxsplit=1)[0]


def broken_links(root: Path) -> list[str]:
    """Relative links of README and docs that lead nowhere, as `file: link`."""
    files = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    broken = []
    for file in files:
        if not file.is_file():
            continue
        text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\[[^\]]*\]\(<?([^)\s>]+)", text):
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            place, _, anchor = unquote(link).partition("#")
            target = (file.parent / place).resolve() if place else file
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{file.relative_to(root)}: {link} leads nowhere")
    return broken


def anchors(file: Path) -> set[str]:
    """The anchors that a page's headings make."""
    if file.suffix != ".md":
        return set()
    headings = re.findall(r"^#+ +(.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
