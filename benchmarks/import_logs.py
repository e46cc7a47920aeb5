"""Logs to import, in the form of other writers: many small commits, or one large checkpoint.

Both are created once and kept in build/bench/cache. There are no data files: an import does not
open them.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from benchmarks.datasets import deltalake_table
from benchmarks.harness import print_progress
from benchmarks.peers import Deltalake, add_json
from benchmarks.workload import MODIFIED_MS, facts
from benchmarks.workspace import CACHE

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Facts

_CHECKPOINT_EVERY = 100


def many_commits(files: int, commits: int) -> Deltalake:
    """Return a table with this number of files and commits, and a checkpoint like deltalake's."""
    table = Deltalake(CACHE / f"import-{files}-{commits}")
    if _is_done(table):
        return table
    print_progress(f"  making a log of {commits:,} commits")
    table.create(1)
    per_commit = files // commits
    last = commits // _CHECKPOINT_EVERY * _CHECKPOINT_EVERY
    for version in range(1, last + 1):
        _write_commit(table, version, _some(version, per_commit, files))
    table.checkpoint(0)
    for version in range(last + 1, commits + 1):
        _write_commit(table, version, _some(version, per_commit, files))
    (table.folder / "done").touch()
    return table


def one_checkpoint(files: int) -> Deltalake:
    """Return a table with this number of files whose older commits were cleaned up."""
    table = Deltalake(CACHE / f"import-checkpoint-{files}")
    if _is_done(table):
        return table
    source = _log(deltalake_table(files))
    shutil.copytree(source, _log(table))
    last = max(int(path.stem) for path in source.glob("*.json"))
    _write_commit(table, last + 1, [])
    table.checkpoint(0)
    for path in _log(table).glob("*"):
        if path.name.split(".")[0].isdigit() and int(path.name.split(".")[0]) <= last:
            path.unlink()
    (table.folder / "done").touch()
    return table


def _is_done(table: Deltalake) -> bool:
    if (table.folder / "done").exists():
        return True
    shutil.rmtree(table.folder, ignore_errors=True)
    table.folder.mkdir(parents=True)
    return False


def _log(table: Deltalake) -> Path:
    return table.folder / "t0" / "_delta_log"


def _some(version: int, count: int, files: int) -> list[Facts]:
    first = (version - 1) * count
    return [facts(number, files) for number in range(first, first + count)]


def _write_commit(table: Deltalake, version: int, files: list[Facts]) -> None:
    info = {"timestamp": MODIFIED_MS + version, "operation": "WRITE", "clientVersion": "delta-rs"}
    lines = [{"commitInfo": info}, *({"add": add_json(file)} for file in files)]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (_log(table) / f"{version:020d}.json").write_text(text)
