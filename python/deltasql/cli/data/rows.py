"""Print the rows of a query; csv, json and ndjson are streamed, batch by batch."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.context import talk
from deltasql.cli.output import Output, csv_writer, say
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from deltasql.cli.context import Context

_SHOWN = 1000  # rows that table and markdown print without --limit


def most_rows(context: Context) -> int | None:
    """Return the default row limit of the output format; None if all rows are printed."""
    return _SHOWN if context.format in ("table", "markdown") else None


def show_rows(context: Context, answer: pa.RecordBatchReader, most: int | None) -> None:
    """Print rows in the output format; print a message if only the first `most` are shown."""
    names = _distinct(answer.schema.names)
    rows = _rows(answer)
    if context.format == "csv":
        writer = csv_writer()
        writer.writerow(names)
        for row in rows:
            writer.writerow("" if value is None else _cell(value) for value in row)
    elif context.format == "ndjson":
        for row in rows:
            say(_json(dict(zip(names, row, strict=True))))
    elif context.format == "json":
        click.echo("[", nl=False)
        for number, row in enumerate(rows):
            click.echo(("," if number else "") + "\n  ", nl=False)
            say(_json(dict(zip(names, row, strict=True))), nl=False)
        click.echo("\n]")
    else:
        shown = [dict(zip(names, map(plain, row), strict=True)) for row in rows]
        Output(context.format, color=context.color, exact=True).rows(shown[:most], names)
        if most is not None and len(shown) > most:
            talk(f"the first {many(most, 'row')}; --limit or another --format shows more")


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


def _rows(answer: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    from deltasql.engine.inputs import python_values  # late import: it loads Arrow

    for batch in answer:
        yield from zip(*map(python_values, batch.columns), strict=True)


def _json(row: dict[str, Any]) -> str:
    return json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False)


def _cell(value: Any) -> Any:
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
