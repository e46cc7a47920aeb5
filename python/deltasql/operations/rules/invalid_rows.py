"""The error for rows that break a rule of the table, which shows some of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.inputs import python_values
from deltasql.exceptions import InvalidDataError

if TYPE_CHECKING:
    import pyarrow as pa

PREVIEW_ROWS = 5
_WIDTH = 60


def invalid_data_error(table: str, count: int, rows: pa.Table, advice: str) -> InvalidDataError:
    """Return the error for `count` invalid rows; `rows` are all or the first of these rows."""
    return InvalidDataError(
        f"Invalid data found: {count} rows failed validation check.\n"
        f"Preview of invalid data:\n\n{preview(rows.slice(0, PREVIEW_ROWS))}",
        table=table,
        help=advice,
    )


def preview(rows: pa.Table) -> str:
    """Format rows as an ASCII table.

    >>> import pyarrow as pa
    >>> print(preview(pa.table({"a": [-1, None], "b": ["x", "y"]})))
    +----+---+
    | a  | b |
    +----+---+
    | -1 | x |
    |    | y |
    +----+---+
    """
    lines = [rows.column_names]
    columns = [python_values(column) for column in rows.columns]
    lines += [[_text(value) for value in row] for row in zip(*columns, strict=True)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    frame = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    head, *body = [
        "| " + " | ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    return "\n".join([frame, head, frame, *body, frame])


def _text(value: Any) -> str:
    return _shown(value).replace("\n", " ")[:_WIDTH]


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case dict():
            return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(_shown(v) for v in value) + "]"
        case _:
            return str(value)
