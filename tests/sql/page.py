"""The table of statements in docs/reference/sql.md, generated from the cases."""

from __future__ import annotations

from pathlib import Path

from tests.sql.cases import CASES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
START, END = "<!-- statements -->\n", "<!-- end of statements -->"


def with_table(text: str) -> str:
    """Return the page with a new table between the two marker comments."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{_table()}\n{END}{rest.partition(END)[2]}"


def _table() -> str:
    lines = [
        "| | statement | embedded engine | classic Spark | Spark Connect | Spark catalog |",
        "|---|---|---|---|---|---|",
    ]
    group = None
    for case in CASES:
        # Two backquotes enclose a text that has one.
        quotes = "``" if "`" in case.shown else "`"
        shown = "" if case.group == group else case.group
        statement = f"{quotes}{case.shown}{quotes}"
        lines.append(f"| {shown} | {statement} | yes | yes | yes | {case.catalog} |")
        group = case.group
    return "\n".join(lines) + "\n"
