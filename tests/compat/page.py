"""Formats the matrix for a terminal and for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tests.compat.checks import WRITES

if TYPE_CHECKING:
    from tests.compat.checks import Check

NOTICE = "<!-- Written by `make compat`, which asks the releases themselves. -->"
Cells = Mapping[tuple[str, str, str], str]

_INTRO = """\
Each column is a release of deltalake in an environment of its own: the last three minor releases,
and the last one before 1.0. `make compat` lets each of them read tables that deltasql published,
write by path, and write tables that are then imported; rows are compared at every version, in a
long log around its checkpoints.

- **yes**: the same rows at every version. *By its SQL*, *by pyarrow*: one of its two ways to read
  has them (`QueryBuilder`, `to_pyarrow_table`), the other one refuses or is wrong.
- **refused**: the release says that it cannot write to the table, and changes nothing.
- **not refused, but noticed**: the release does not look at the features that a writer has to know.
  It commits past SQL; `deltasql verify` says so, and `mirror adopt` or `mirror reject` settles it.
  Keep such releases out by the permissions of the store.
- **no**: the release says that it cannot read the table, as for features that it does not know.
- **other rows**: it reads, but not what the table holds, whoever wrote it.
"""


_KEPT_OUT = """\
In-commit timestamps are what keeps writers by path out: SQL decides. They keep out who looks at
the features that a table asks of writers and does not know this one. deltalake before 1.0 does not
look, and delta-spark knows it: take their right to write to the folder or bucket away.
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
            parts.append(_KEPT_OUT.strip())
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
