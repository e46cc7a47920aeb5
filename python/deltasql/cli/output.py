"""Print results as a table, Markdown, JSON, YAML or CSV."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from _csv import Writer as CsvWriter
    from collections.abc import Mapping, Sequence

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FORMATS = ("table", "json", "ndjson", "csv", "yaml", "markdown")


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to stdout in one format."""

    format: str
    color: bool = True
    exact: bool = False
    """Whether values are printed without rounding, and column names unchanged."""

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print rows: these columns, or in JSON and YAML all fields."""
        if self.format == "json":
            say(json.dumps([*map(dict, rows)], indent=2, default=_text))
        elif self.format == "ndjson":
            for row in rows:
                say(json.dumps(dict(row), default=_text))
        elif self.format == "yaml":
            say(_yaml([*map(dict, rows)]), nl=False)
        elif self.format == "csv":
            writer = csv_writer()
            writer.writerow(columns)
            writer.writerows([self._cell(row.get(column)) for column in columns] for row in rows)
        elif self.format == "markdown":
            say(self._markdown(rows, columns))
        else:
            self._table(rows, columns)

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one object: as JSON or YAML, or as rows of key and value."""
        if self.format in ("json", "ndjson"):
            indent = 2 if self.format == "json" else None
            say(json.dumps(dict(record), indent=indent, default=_text))
            return
        if self.format == "yaml":
            say(_yaml(dict(record)), nl=False)
            return
        rows = [{"key": key, "value": value} for key, value in record.items()]
        self.rows(rows, ("key", "value"))

    def _table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            numbers = all(_is_number(row.get(column)) for row in rows)
            title = Text(visible(self._title(column)))
            table.add_column(title, justify="right" if numbers else "left")
        for row in rows:
            # As Text: rich would read a name in brackets as markup.
            cells = (visible(self._cell(row.get(column))) for column in columns)
            table.add_row(*map(Text, cells))
        # Without a terminal, do not wrap or cut values: scripts need them whole.
        width = None if sys.stdout.isatty() else 10_000
        Console(file=sys.stdout, width=width, no_color=not self.color, highlight=False).print(table)

    def _markdown(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
        lines = [[self._title(column) for column in columns], ["---" for _ in columns]]
        lines += [[self._cell(row.get(column)) for column in columns] for row in rows]
        return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)

    def _title(self, column: str) -> str:
        return column if self.exact else column.replace("_", " ")

    def _cell(self, value: object) -> str:
        if self.exact and not isinstance(value, str | None):
            return json.dumps(value, default=_text, ensure_ascii=False)
        return _cell(value)


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text; control characters are escaped if the output is a terminal."""
    stream = sys.stderr if err else sys.stdout
    # color=True: otherwise click would also remove escape codes from piped data.
    click.echo(visible(text) if stream.isatty() else text, nl=nl, err=err, color=True)


def csv_writer() -> CsvWriter:
    """Return a CSV writer to stdout."""
    return csv.writer(_Terminal() if sys.stdout.isatty() else sys.stdout, lineterminator="\n")


class _Terminal:
    """A file that writes to the terminal and escapes control characters."""

    def write(self, text: str) -> int:
        return sys.stdout.write(visible(text))


def _yaml(value: object) -> str:
    try:
        import yaml
    except ImportError as error:
        from deltasql.exceptions import MissingDriverError

        raise MissingDriverError(
            "--format yaml needs PyYAML, which is not installed", driver="pyyaml", extra="yaml"
        ) from error
    plain = json.loads(json.dumps(value, default=_text))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def visible(text: str) -> str:
    """Escape control characters, which a terminal would execute.

    >>> visible("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _escaped(text: str) -> str:
    """Escape a cell of a Markdown table, and put it on one line."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return "; ".join(map(_cell, value))
    if isinstance(value, dict):
        return json.dumps(value, default=_text) if value else ""
    return _text(value) if not isinstance(value, str) else value


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
