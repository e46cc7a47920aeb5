"""Keeps the results of cells in files, and formats them for a terminal and for the docs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.matrix.behaviours import OK
from tests.matrix.cell import ROOT

ROWS = ROOT / "docs" / "tools" / "matrix"
"""The folder with a file of rows for each module of cells."""


@dataclass(frozen=True)
class Result:
    """What one cell showed; `reason` says why it was skipped."""

    component: str
    release: str
    results: dict[str, str]
    reason: str | None
    seconds: float
    commit: str
    """The last commit that changed code, with -changed if files differed from it."""

    @property
    def name(self) -> str:
        return f"{self.component} {self.release}"

    @property
    def failed(self) -> bool:
        return any(result != OK for result in self.results.values())


def commit_of_tree() -> str:
    """Return the last commit that changed code, with -changed if files differ from it.

    Commits that only record results, which are in docs, do not count.
    """
    commit = _git("log", "-1", "--format=%h", "--abbrev=12", "--", ".", ":!docs")
    return f"{commit}-changed" if is_changed() else commit


def is_changed() -> bool:
    """Return whether code differs from the commit: then results are not reused."""
    return bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def load(path: Path) -> Result | None:
    """Return the finished result of a cell; skipped and failed cells are run again."""
    if not path.exists():
        return None
    result = Result(**json.loads(path.read_text("utf-8")))
    return None if result.failed or result.reason else result


def save(path: Path, result: Result) -> None:
    """Keep the result of a cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(asdict(result), indent=2)}\n", "utf-8")


def terminal(results: Sequence[Result], behaviours: Sequence[str]) -> str:
    """Return the table component × release × behaviour, and the failures below it."""
    lines = [("component", "release", *behaviours, "other checks")]
    notes = []
    for each in results:
        others = {name: r for name, r in each.results.items() if name not in behaviours}
        if each.reason:
            lines.append((each.component, each.release, f"skipped: {each.reason}"))
            continue
        cells = [_mark(each.results.get(name)) for name in behaviours]
        more = ", ".join(f"{name} {_mark(result)}" for name, result in others.items())
        lines.append((each.component, each.release, *cells, more))
        notes += [f"{each.name}: {n}: {r}" for n, r in each.results.items() if r != OK]
    widths = [
        max((len(line[at]) for line in lines if len(line) > 3), default=0)
        for at in range(len(lines[0]))
    ]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    ]
    return "\n".join([*text, *notes])


def _mark(result: str | None) -> str:
    return "-" if result is None else OK if result == OK else "FAILED"


def write_rows(module: str, names: Sequence[str], results: Mapping[str, Result]) -> None:
    """Update the rows of a module, from which docs/build.py writes the page.

    The rows of cells that were not run stay; those of cells that no longer exist are removed.
    """
    path = ROWS / f"{module}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else []
    rows = {f"{row['component']} {row['release']}": row for row in known}
    for name, each in results.items():
        row = {"component": each.component, "release": each.release}
        outcome = {"results": each.results, "skipped": each.reason, "commit": each.commit}
        rows[name] = {**row, **outcome}
    chosen = [rows[name] for name in names if name in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{json.dumps(chosen, indent=2)}\n", "utf-8")
