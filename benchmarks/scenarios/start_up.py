"""Measure the CPU time of commands, compared with importing the libraries that they need."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fresh_process import ROOT
from benchmarks.harness import result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Start-up of commands"


@dataclass(frozen=True, slots=True)
class Start:
    """A command, the imports that it is compared with, and the largest ratio of the two."""

    name: str
    arguments: tuple[str, ...]
    imports: str
    limit: float


STARTS = (
    Start("--version", ("--version",), "click", 1.5),
    Start("table list", ("table", "list"), "click, rich.table, pydantic", 3.0),
    Start("query", ("query", "SELECT 1"), "duckdb, pyarrow, sqlglot", 2.0),
)


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure each command and its imports in turns, on an empty catalog in SQLite."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for start in STARTS:
            ours, imports = cpu_ms(start, Path(folder), repeats=3 if quick else 15)
            common: Any = {"case": start.name, "size": 1, "metric": "CPU time", "unit": "ms"}
            found += [
                result("deltasql-sqlite", "sqlite", ours, **common),
                result("imports", "none", imports, **common),
            ]
    return found


def cpu_ms(start: Start, folder: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Return the CPU times of a command and of the imports, in alternating runs.

    Creates a catalog in `folder`, and compiles modules into it: installed modules are compiled, but
    those of a source tree may not be.
    """
    environment = os.environ | {
        "DELTASQL_URI": f"deltasql://sqlite/{folder}/start-up.db",
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "PYTHONPATH": str(ROOT / "python"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = ("-m", "deltasql.cli.main")
    _cpu_ms((*program, "init"), environment)
    imports, command = ("-c", f"import {start.imports}"), (*program, *start.arguments)
    _cpu_ms(imports, environment)  # the first runs compile the modules
    _cpu_ms(command, environment)
    pairs = [(_cpu_ms(command, environment), _cpu_ms(imports, environment)) for _ in range(repeats)]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def _cpu_ms(arguments: Sequence[str], environment: dict[str, str]) -> float:
    """Return the CPU time in milliseconds of a new Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds * 1000
