"""Print results, messages and questions. Results go to stdout, all else to stderr."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from deltasql.cli.text_table import as_columns, one_below_the_other
from deltasql.model.counts import age, many, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from deltasql.api.inspect.page import Page

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FORMATS = ("table", "json", "ndjson", "csv", "yaml", "markdown")
_QUOTED_IN_CSV = re.compile(r'[",\r\n]')
_SIZE = re.compile("bytes|^targetSize$", re.IGNORECASE)  # names of fields that contain bytes
_SECONDS = re.compile("_s$")  # names of fields that contain seconds
# The titles of fields in the formats table and markdown; other formats have the names of fields.
_TITLES = {
    "size_bytes": "size",
    "size_in_bytes": "file size",
    "lag_s": "lag",
    "is_following": "following",
}
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
    wide: bool = False
    """Whether the table format prints the columns of a row one below the other."""
    pager: bool = True
    """Whether a table that is longer than the terminal is shown in a pager."""

    @property
    def is_structured(self) -> bool:
        """Whether the format keeps nested values: JSON or YAML."""
        return self.format in ("json", "ndjson", "yaml")

    @property
    def is_for_people(self) -> bool:
        """Whether people read the format (table or markdown); programs read the other formats."""
        return self.format in ("table", "markdown")

    @property
    def result_limit(self) -> int | None:
        """The default row limit of a query in this format; None if all rows are printed."""
        return _RESULT_ROWS if self.is_for_people else None

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print rows with these columns; JSON and YAML contain all fields."""
        if self.is_for_people and not self.exact:
            rows = [*map(_with_units, rows)]
        if self.format == "json":
            echo(json.dumps([*map(dict, rows)], indent=2, default=_text))
        elif self.format == "ndjson":
            for row in rows:
                echo(json.dumps(dict(row), default=_text))
        elif self.format == "yaml":
            echo(_yaml([*map(dict, rows)]), nl=False)
        elif self.format == "csv":
            print_line = _csv_lines()
            print_line(_csv_line(columns))
            for row in rows:
                print_line(_csv_line([_csv_value(row.get(column)) for column in columns]))
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
        if self.is_for_people:
            record = {_TITLES.get(key, key): each for key, each in _with_units(record).items()}
        rows = [{"key": key, "value": value} for key, value in record.items()]
        if self.wide and self.format == "table":
            drawing = one_below_the_other(record.keys(), [map(self._shown, record.values())])
            echo("\n".join(drawing.lines[1:]))
            return
        self.rows(rows, ("key", "value"))

    def report(self, report: Summarized) -> None:
        """Print a report: a summary in the table format, all fields in other formats."""
        if self.format == "table":
            echo(report.summary())
        else:
            self.record(report.to_dict())

    def query_result(
        self, result: pa.RecordBatchReader, most: int | None, columns: Sequence[str] = ()
    ) -> None:
        """Print the rows of a query, or only these columns.

        The formats csv, json and ndjson are printed while the rows are read. In other formats, only
        the first `most` rows are printed, with a message if there are more.
        """
        names = _distinct(result.schema.names)
        rows = _values(result)
        if columns:
            places = [names.index(each) for each in columns]
            names = [*columns]
            rows = (tuple(row[place] for place in places) for row in rows)
        if self.format == "csv":
            print_line = _csv_lines()
            print_line(_csv_line(names))
            for row in rows:
                print_line(_csv_line([_csv_cell(value) for value in row]))
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
        # If stdout is not a terminal, do not cut values: scripts need the whole values.
        size = shutil.get_terminal_size() if sys.stdout.isatty() else None
        titles = [visible(self._title(column)) for column in columns]
        cells = [[self._shown(row.get(column)) for column in columns] for row in rows]
        if self.wide:
            drawing = one_below_the_other(titles, cells)
        else:
            right = [_has_numbers([row.get(column) for row in rows]) for column in columns]
            drawing = as_columns(
                titles,
                cells,
                right=right,
                width=size and size.columns,
                leave_out="middle" if self.exact else "last",
            )
        lines = drawing.lines
        if self.color and _has_styles():
            lines = [
                f"\x1b[1m{line}\x1b[0m" if number in drawing.headings else line
                for number, line in enumerate(lines)
            ]
        text = "\n".join(lines)
        pages = self.pager and os.environ.get("PAGER") != ""
        if size is not None and pages and len(lines) >= size.lines:
            click.echo_via_pager(f"{text}\n")  # click sets up `less` to show bold text
        else:
            click.echo(text, color=True)
        hint = drawing.hint(len(titles))
        if hint:
            message(hint)

    def _shown(self, value: object) -> str:
        """Return a value for a table; a timestamp becomes relative on a terminal."""
        if isinstance(value, datetime) and not self.exact and sys.stdout.isatty():
            return age(value)
        return visible(self._cell(value))

    def _markdown(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
        lines = [[self._title(column) for column in columns], ["---" for _ in columns]]
        lines += [[self._cell(row.get(column)) for column in columns] for row in rows]
        return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)

    def _title(self, column: str) -> str:
        return column if self.exact else _TITLES.get(column, column).replace("_", " ")

    def _cell(self, value: object) -> str:
        if self.exact and value is None:
            return "NULL"
        if self.exact and not isinstance(value, str):
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


def _has_styles() -> bool:
    """Return whether stdout is a terminal that shows bold text, and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in ("dumb", None)
    return sys.stdout.isatty() and not plain


def _csv_lines() -> Callable[[str], object]:
    """Return a function that prints a line of CSV to stdout."""
    if sys.stdout.isatty():
        return lambda line: sys.stdout.write(visible(f"{line}\n"))
    return lambda line: sys.stdout.write(f"{line}\n")


def _csv_line(values: Sequence[str | None]) -> str:
    """Return a line of CSV. NULL is an empty field, and the empty string is `""`.

    The writer of Python's csv module distinguishes the two only since Python 3.12.

    >>> print(_csv_line(["a", None, "", "1,5"]))
    a,,"","1,5"
    """
    fields = []
    for value in values:
        if value is None:
            fields.append("")
        elif value == "" or _QUOTED_IN_CSV.search(value):
            fields.append('"' + value.replace('"', '""') + '"')
        else:
            fields.append(value)
    return ",".join(fields)


def _csv_value(value: object) -> str | None:
    return None if value is None else _cell(value)


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


def _with_units(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write numbers of bytes in a suitable unit, and add the unit to seconds.

    >>> _with_units({"bytesRemoved": 2295, "lag_s": 0.25, "rows": 2295})
    {'bytesRemoved': '2.2 KiB', 'lag_s': '0.2 s', 'rows': 2295}
    """

    def text(key: str, value: Any) -> Any:
        if isinstance(value, int) and _SIZE.search(key):
            return size_text(value)
        if isinstance(value, float) and _SECONDS.search(key):
            return f"{value:,.1f} s"
        return value

    return {key: text(key, value) for key, value in row.items()}


def _has_numbers(values: Sequence[object]) -> bool:
    """Return whether all values are numbers or NULL, and not all are NULL."""
    known = [value for value in values if value is not None]
    return bool(known) and all(map(_is_number, known))


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
    if isinstance(value, bool):
        return str(value).lower()
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


def _csv_cell(value: Any) -> str | None:
    found = plain(value)
    if isinstance(found, dict | list | bool):
        return json.dumps(found, ensure_ascii=False)
    return None if found is None else str(found)


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
