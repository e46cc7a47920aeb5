"""Print results, messages and questions. Results go to stdout, all else to stderr."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from deltasql.model.counts import many

if TYPE_CHECKING:
    from _csv import Writer as CsvWriter
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from deltasql.api.inspect.page import Page

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FORMATS = ("table", "json", "ndjson", "csv", "yaml", "markdown")
_PAGE = 1000
_RESULT_ROWS = 1000  # the formats table and markdown print this many rows without --limit


class Summarized(Protocol):
    """A report that has a summary for people and fields for programs."""

    def summary(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to stdout in one format."""

    format: str
    color: bool = True
    exact: bool = False
    """Whether values are printed without rounding, and column names unchanged."""

    @property
    def is_structured(self) -> bool:
        """Whether the format keeps nested values: JSON or YAML."""
        return self.format in ("json", "ndjson", "yaml")

    @property
    def result_limit(self) -> int | None:
        """The default row limit of a query in this format; None if all rows are printed."""
        return _RESULT_ROWS if self.format in ("table", "markdown") else None

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print rows with these columns; JSON and YAML contain all fields."""
        if self.format == "json":
            echo(json.dumps([*map(dict, rows)], indent=2, default=_text))
        elif self.format == "ndjson":
            for row in rows:
                echo(json.dumps(dict(row), default=_text))
        elif self.format == "yaml":
            echo(_yaml([*map(dict, rows)]), nl=False)
        elif self.format == "csv":
            writer = _csv_writer()
            writer.writerow(columns)
            writer.writerows([self._cell(row.get(column)) for column in columns] for row in rows)
        elif self.format == "markdown":
            echo(self._markdown(rows, columns))
        else:
            self._table(rows, columns)

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one object as JSON or YAML, or as one row per key."""
        if self.format in ("json", "ndjson"):
            indent = 2 if self.format == "json" else None
            echo(json.dumps(dict(record), indent=indent, default=_text))
            return
        if self.format == "yaml":
            echo(_yaml(dict(record)), nl=False)
            return
        rows = [{"key": key, "value": value} for key, value in record.items()]
        self.rows(rows, ("key", "value"))

    def report(self, report: Summarized) -> None:
        """Print a report: a summary in the table format, all fields in other formats."""
        if self.format == "table":
            echo(report.summary())
        else:
            self.record(report.to_dict())

    def query_result(self, result: pa.RecordBatchReader, most: int | None) -> None:
        """Print the rows of a query; csv, json and ndjson are printed batch by batch.

        A message is printed if only the first `most` rows are shown.
        """
        names = _distinct(result.schema.names)
        rows = _values(result)
        if self.format == "csv":
            writer = _csv_writer()
            writer.writerow(names)
            for row in rows:
                writer.writerow("" if value is None else _csv_cell(value) for value in row)
        elif self.format == "ndjson":
            for row in rows:
                echo(_json(dict(zip(names, row, strict=True))))
        elif self.format == "json":
            echo("[", nl=False)
            for number, row in enumerate(rows):
                echo(("," if number else "") + "\n  ", nl=False)
                echo(_json(dict(zip(names, row, strict=True))), nl=False)
            echo("\n]")
        else:
            shown = [dict(zip(names, map(plain, row), strict=True)) for row in rows]
            replace(self, exact=True).rows(shown[:most], names)
            if most is not None and len(shown) > most:
                message(
                    f"showing the first {many(most, 'row')}; --limit or another --format shows more"
                )

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
            # Use Text, because rich would read a name in brackets as markup.
            cells = (visible(self._cell(row.get(column))) for column in columns)
            table.add_row(*map(Text, cells))
        # If stdout is not a terminal, do not wrap or cut values: scripts need the whole values.
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


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a string; control characters are escaped if the output is a terminal."""
    stream = sys.stderr if err else sys.stdout
    # Set color=True, because click would otherwise remove escape codes from piped data.
    click.echo(visible(text) if stream.isatty() else text, nl=nl, err=err, color=True)


def message(text: str) -> None:
    """Print a message to stderr."""
    echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation before an action that is hard to revert, unless `yes` is set."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def first_of(read: Callable[..., Page[T]], limit: int, **options: Any) -> Iterator[T]:
    """Yield the first items of a paginated list; print a message if there are more."""
    left, cursor = limit, None
    while left > 0:
        page = read(limit=min(left, _PAGE), cursor=cursor, **options)
        yield from page.items
        left -= len(page.items)
        cursor = page.next
        if cursor is None:
            return
    message(f"showing the first {limit:,}; use --limit for more")


def _csv_writer() -> CsvWriter:
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


def plain(value: Any) -> Any:
    """Return a value in a form that JSON can represent, without loss of precision.

    >>> plain(float("nan")), plain(b"\\x01"), plain({"a": [1.5]})
    ('NaN', '01', {'a': [1.5]})
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _values(result: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    from deltasql.engine.inputs import python_values  # lazy import: loads Arrow

    for batch in result:
        yield from zip(*map(python_values, batch.columns), strict=True)


def _json(row: dict[str, Any]) -> str:
    return json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False)


def _csv_cell(value: Any) -> Any:
    found = plain(value)
    return json.dumps(found, ensure_ascii=False) if isinstance(found, dict | list) else found


def _distinct(names: list[str]) -> list[str]:
    """Make column names unique by adding a number to repeated names.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    found: list[str] = []
    for name in names:
        number, given = 1, name
        while given in found:
            number += 1
            given = f"{name}_{number}"
        found.append(given)
    return found
