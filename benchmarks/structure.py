"""Measure the structure of the code: modules, lines, imports, and the files a call runs through.

    python -m benchmarks.structure [FOLDER WITH deltasql] [--calls]

`--calls` also runs an append, a scan and a merge of three rows on SQLite with the `deltasql` that
Python imports, and counts the files and packages of deltasql and the depth of the stack.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def modules(root: Path) -> dict[str, Path]:
    """Return every module in a package by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield the modules of `known` that a file imports, each with `top`, `late` or `typing`."""

    def walk(node: ast.AST, kind: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((each.name, kind) for each in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                for each in child.names:
                    full = f"{child.module}.{each.name}"
                    yield (full if full in known else child.module, kind)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, "late" if kind == "top" else kind)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                yield from walk(child, "typing")
            else:
                yield from walk(child, kind)

    tree = ast.parse(path.read_text(encoding="utf-8"))
    return ((name, kind) for name, kind in walk(tree, "top") if name in known)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in list(edges):
        if node not in index:
            visit(node)
    return found


def measure(root: Path) -> dict[str, Any]:
    """Return the measurements of a package by name."""
    known = modules(root)
    importers: dict[str, set[str]] = defaultdict(set)
    top: dict[str, set[str]] = defaultdict(set)
    every: dict[str, set[str]] = defaultdict(set)
    late = 0
    for name, path in known.items():
        for other, kind in set(imports(path, known)):
            if other in (name, root.name):  # the package itself imports its names lazily
                continue
            importers[other].add(name)
            every[name].add(other)
            late += kind == "late"
            if kind == "top":
                top[name].add(other)
    folders = Counter(path.parent for path in known.values())
    plain = [name for name, path in known.items() if path.name != "__init__.py"]
    largest = folders.most_common(3)
    return {
        "modules": len(known),
        "lines": sum(len(path.read_text("utf-8").splitlines()) for path in known.values()),
        "folders with more than 15 modules": sum(count > 16 for count in folders.values()),
        "largest folders": ", ".join(f"{f.relative_to(root.parent)} {n}" for f, n in largest),
        "modules with one importer": sum(len(importers[name]) == 1 for name in plain),
        "late imports of our own": late,
        "modules in import cycles": sum(map(len, cycles(top))),
        "modules in import cycles, with TYPE_CHECKING and late imports": sum(
            map(len, cycles(every))
        ),
    }


def trace(call: Callable[[], object], package: Path) -> str:
    """Run a call and describe how many files and packages it enters, and the stack depth."""
    files: set[str] = set()
    calls = deepest = 0
    depth = 0
    ours = str(package)

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, deepest, depth
        if not frame.f_code.co_filename.startswith(ours):
            return
        if event == "call":
            calls += 1
            depth += 1
            deepest = max(deepest, depth)
            files.add(frame.f_code.co_filename)
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    packages = {Path(each).relative_to(package).parts[0] for each in files}
    return f"{len(files)} files, {len(packages)} packages, {calls} calls, {deepest} deep"


def calls() -> dict[str, str]:
    """Trace an append, a scan and a merge, each after a first run."""
    import pyarrow as pa

    import deltasql

    assert deltasql.__file__ is not None
    package = Path(deltasql.__file__).parent
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    with tempfile.TemporaryDirectory() as folder:
        uri = f"deltasql://sqlite/{folder}/catalog.db?table=t"

        def append() -> None:
            deltasql.write_deltalake(uri, rows, mode="append")

        def scan() -> None:
            deltasql.DeltaTable(uri).to_pyarrow_table()

        def merge() -> None:
            merger = deltasql.DeltaTable(uri).merge(
                rows, "t.id = s.id", source_alias="s", target_alias="t"
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        append()  # creates the table
        append()  # reads its state; later appends take the short path of a blind append
        found = {}
        for name, call in (("append", append), ("scan", scan)):
            call()
            found[name] = trace(call, package)
        deltasql.write_deltalake(uri, rows, mode="overwrite")
        merge()
        found["merge"] = trace(merge, package)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("python/deltasql"))
    parser.add_argument("--calls", action="store_true", help="also trace three operations")
    chosen = parser.parse_args()
    figures = measure(chosen.folder)
    if chosen.calls:
        figures |= calls()
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
