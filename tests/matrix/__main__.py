"""Run the matrix: `python -m tests.matrix [--only TEXT] [--again] [--list]`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.matrix.behaviours import BEHAVIOURS, OK
from tests.matrix.cell import ROOT, Cell, Skipped
from tests.matrix.report import Result, commit_of_tree, is_changed, load, save, terminal, write_rows

MODULES = ("databases", "stores", "spark_stores", "engines")


def cells() -> dict[str, list[Cell]]:
    """Return the cells by module."""
    names = {module: f"tests.matrix.{module}" for module in MODULES}
    return {
        module: import_module(name).cells() for module, name in names.items() if find_spec(name)
    }


def run(cell: Cell) -> Result:
    """Run one cell in a new folder; an error is a result, too."""
    began = time.monotonic()
    results: dict[str, str] = {}
    reason = None
    # Readable by all users: servers that refuse root run as another user.
    with tempfile.TemporaryDirectory(prefix="deltasql-matrix-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            results = cell.run(folder)
        except Skipped as skipped:
            reason = str(skipped)
        except Exception as error:
            traceback.print_exc()
            results = {"start": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        if any(result != OK for result in results.values()) and (folder / "log.txt").exists():
            print((folder / "log.txt").read_text("utf-8")[-8_000:], file=sys.stderr)
    seconds = round(time.monotonic() - began, 1)
    return Result(cell.component, cell.release, results, reason, seconds, commit_of_tree())


def main(arguments: list[str]) -> int:
    """Run the cells that have no result for this commit; return 1 if a behaviour failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix",
        description="Run one behaviour suite with every supported database, store and engine. "
        "Results are kept in build/matrix/<commit>/, and finished cells are not run again.",
        epilog="example: python -m tests.matrix --only PostgreSQL",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains it")
    parser.add_argument("--again", action="store_true", help="run finished cells again")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    given = parser.parse_args(arguments)
    every = cells()
    chosen = [
        cell
        for found in every.values()
        for cell in found
        if given.only.lower() in cell.name.lower()
    ]
    if not chosen:
        parser.error(f"no cell has {given.only!r} in its name; --list prints all names")
    if given.list:
        print("\n".join(cell.name for cell in chosen))
        return 0
    folder = ROOT / "build" / "matrix" / commit_of_tree()
    again = given.again or is_changed()
    found = []
    for number, cell in enumerate(chosen, 1):
        path = folder / f"{re.sub(r'[^A-Za-z0-9.]+', '-', cell.name).strip('-')}.json"
        result = None if again else load(path)
        if result is None:
            print(f"{number} of {len(chosen)}: {cell.name}", file=sys.stderr, flush=True)
            result = run(cell)
            save(path, result)
        found.append(result)
    print(terminal(found, tuple(BEHAVIOURS)))
    failed = [result for result in found if result.failed]
    if failed:
        print(f"failed: {', '.join(result.name for result in failed)}", file=sys.stderr)
    results = {result.name: result for result in found}
    for module, known in every.items():
        names = [cell.name for cell in known]
        write_rows(module, names, {n: r for n, r in results.items() if n in names})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
