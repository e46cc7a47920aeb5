"""Writes the documentation page of the fault matrix from the counts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.cells import BACKENDS, FAULTS, POINTS

_DOCS = Path(__file__).parents[2] / "docs" / "reliability"
PAGE, RESULT = _DOCS / "faults.md", _DOCS / "faults.json"
_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL"}
_MEANING = {
    "intended": "the intents of the data files are recorded; none of the files exists",
    "written": "the data files are written; the operation is not staged",
    "staged": "the changes are validated; no statement of the commit is sent",
    "locked": "the heads of the tables are locked",
    "checked": "the conflict rules found no conflict",
    "sending": "from here on, the database may commit although the client gets no response",
    "inserting": "the rows of one table are sent; those of the next table are not",
    "committing": "all rows are sent; COMMIT is not",
    "ratified": "COMMIT was acknowledged",
    "publishing": "a commit file is about to be written",
    "published": "the commit file is written",
    "recorded": "the database has recorded the version as published",
    "copied": "in a replica, the data files exist; the commit file does not",
    "checkpointing": "a checkpoint is about to be written",
    "checkpointed": "the checkpoint is written, `_last_checkpoint` is not",
    "cleaning": "expired log files are about to be deleted",
}
_TEXT = Path(__file__).with_name("page.md")


def page(result: dict[str, Any]) -> str:
    """Return the text of the page."""
    backends = result["backends"]
    count = {name: sum(each[name] for each in backends.values()) for name in ("commits", "kills")}
    tried = {
        (point, backend): backends[backend]["tried"].get(point, {})
        for point in POINTS
        for backend in BACKENDS
    }
    cells = sum(sum(each.values()) for each in tried.values())
    rows = [["point", "", *(_NAMES[each] for each in BACKENDS)]]
    rows += [
        [point, _MEANING[point], *(f"{sum(tried[point, b].values())}" for b in BACKENDS)]
        for point in POINTS
    ]
    tables = _table(rows) + "\n"
    rows = [["fault", *(_NAMES[each] for each in BACKENDS)]]
    rows += [
        [fault, *(f"{sum(tried[p, b].get(fault, 0) for p in POINTS)}" for b in BACKENDS)]
        for fault in FAULTS
    ]
    rows += [
        [label, *(f"{backends[backend][name]:,}" for backend in BACKENDS)]
        for name, label in (
            ("kills", "kills from outside"),
            ("commits", "commits checked"),
            ("rows", "rows compared with stock deltalake's"),
            ("orphans", "files without a commit, found and deleted"),
        )
    ]
    values = {
        "cells": f"{cells:,}",
        "of": f"{result['of']:,}",
        "seed": result["seed"],
        "tables": tables + _table(rows),
    }
    return _TEXT.read_text(encoding="utf-8").format(
        **values, **result["broken"], **_formatted(count)
    )


def _formatted(counts: dict[str, int]) -> dict[str, str]:
    return {name: f"{count:,}" for name, count in counts.items()}


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"
