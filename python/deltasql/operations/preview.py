"""Rows as a small table of text, for an error message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.engine.inputs import python_values

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTH = 60


def preview(rows: pa.Table) -> str:
    """Draw rows with a frame of ASCII.

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
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
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
