"""Formats the matrix for a terminal and for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tests.compat.checks import WRITES

if TYPE_CHECKING:
    from tests.compat.checks import Check

NOTICE = "<!-- Written by `make compat`, which runs the releases themselves. -->"
Cells = Mapping[tuple[str, str, str], str]

_INTRO = """\
Each column is a release of deltalake in an environment of its own: the last three minor releases,
and the last release before 1.0. With each of them, `make compat` reads tables that deltasql
published, writes to the paths of such tables, and writes tables that deltasql then imports. Rows
are compared at every version, or around the checkpoints of a long log.

- **yes**: the same rows at every version.
- **QueryBuilder only**, **pyarrow only**: only one of the release's two ways to read returns these
  rows, `QueryBuilder` or `to_pyarrow_table`. The other one raises an error or returns wrong rows.
- **rejected**: the release raises an error that it cannot write to the table, and changes nothing.
- **not rejected, but detected**: the release does not check the features that a writer must
  support. Its commit bypasses the database; `deltasql verify` reports it, and `mirror adopt` or
  `mirror reject` resolves it. Revoke the write access of programs with such a release.
- **no**: the release raises an error that it cannot read the table, for example because it does not
  support a feature.
- **wrong rows**: the release reads the table, but returns wrong rows, no matter which program wrote
  the table.
"""


_BLOCKED = """\
In-commit timestamps block path-based writers that check the writer features of a table and do not
support this one. deltalake before 1.0 does not check them, and delta-spark supports the feature:
revoke their write access to the folder or bucket.
"""


def markdown(checks: Sequence[Check], releases: Sequence[str], cells: Cells) -> str:
    """Return the page for the docs."""
    parts = [NOTICE, "# Compatibility with deltalake releases", _INTRO.strip()]
    for topic, members in groupby(checks, key=lambda check: check.topic):
        lines = [("", *releases), ("---", *("---" for _ in releases))]
        for check in members:
            found = (cells[topic, check.title, release] for release in releases)
            lines.append((check.title, *found))
        parts.append(f"## {topic}")
        if topic == WRITES:
            parts.append(_BLOCKED.strip())
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def terminal(checks: Sequence[Check], releases: Sequence[str], cells: Cells) -> str:
    """Return the matrix with aligned columns."""
    lines: list[tuple[str, ...]] = []
    for topic, members in groupby(checks, key=lambda check: check.topic):
        lines += [(), (topic, *releases)]
        for check in members:
            found = (cells[topic, check.title, release] for release in releases)
            lines.append((f"  {check.title}", *found))
    widths = [max(len(line[at]) for line in lines if line) for at in range(len(releases) + 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    )
