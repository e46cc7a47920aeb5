"""The page docs/reference/table-features.md, generated from the cases.

`python -m tests.features.page` writes it.
"""

from __future__ import annotations

from pathlib import Path

from tests.features.cases import READ_ONLY, SUPPORTED, UNSUPPORTED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "table-features.md"
START, END = "<!-- features -->\n", "<!-- end of features -->"


def with_table(text: str) -> str:
    """Return the page with a new table between the two marker comments."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{_table()}\n{END}{rest.partition(END)[2]}"


def _table() -> str:
    rows = {name: ("yes", "yes", each.note) for name, each in SUPPORTED.items()}
    rows |= {name: ("yes", "no", note) for name, note in READ_ONLY.items()}
    rows |= {name: ("no", "no", note) for name, note in UNSUPPORTED.items()}
    lines = ["| feature | read | write | |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {' | '.join(rows[name])} |" for name in sorted(rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
