"""Run the whole fault matrix and write its page: `make faults`.

A violation is reported with its cell and with the folder that contains the evidence.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import new_catalog_uri
from tests.faults.cells import BACKENDS, FAULTS, POINTS, cells
from tests.faults.killed_clients import run_lives
from tests.faults.matrix import run_cell
from tests.faults.report import PAGE, RESULT, page

if TYPE_CHECKING:
    from tests.faults.invariants import Checked

COUNTS = ("kills", "commits", "rows", "orphans")
_LIVES_AT_ONCE = 5
_REPORT_EVERY_S = 60.0


def main(arguments: list[str]) -> int:
    """Run the databases in parallel, since most of the time is waiting; return 1 on a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--kills", type=int, default=30, help="from outside, for each database")
    parser.add_argument("--minutes", type=float, default=600, help="then no other fault is tried")
    parser.add_argument("--lanes", type=int, default=1, help="processes for each database")
    parser.add_argument("--lane", help="one of them, as in sqlite-0; no page is written")
    parser.add_argument("--out", type=Path, help="with --lane: where its counts go")
    options = parser.parse_args(arguments)
    if options.lane:
        backend, _, lane = options.lane.partition("-")
        end = time.monotonic() + options.minutes * 60
        result = run_lane(backend, int(lane), options.lanes, options.seed, options.kills, end)
        text = json.dumps(result, indent=1)
        print(text) if options.out is None else options.out.write_text(text)
        return bool(result["failed"])
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    lanes = [f"{backend}-{number}" for backend in BACKENDS for number in range(options.lanes)]
    command = [sys.executable, "-m", "tests.faults", *arguments, "--seed", options.seed]
    running = [
        subprocess.Popen([*command, "--lane", lane, "--out", str(folder / lane)]) for lane in lanes
    ]
    for process in running:
        process.wait()
    return write(options.seed, {lane: json.loads((folder / lane).read_text()) for lane in lanes})


def write(seed: str, parts: dict[str, dict[str, Any]]) -> int:
    """Write the page, unless a guarantee was violated."""
    failed = [each for part in parts.values() for each in part["failed"]]
    for each in failed:
        print(each)
    if failed:
        return 1
    backends = {
        backend: together([part for lane, part in parts.items() if lane.startswith(backend)])
        for backend in BACKENDS
    }
    broken = dict.fromkeys(("lost", "duplicated", "partial", "broken"), 0)
    result = {"seed": seed, "of": len(list(cells())), "broken": broken, "backends": backends}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(result), encoding="utf-8")
    print(f"no commit lost, duplicated or partial: {PAGE}")
    return 0


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the counts of the lanes of a database."""
    tried = {
        point: {
            fault: count
            for fault in FAULTS
            if (count := sum(part["tried"].get(point, {}).get(fault, 0) for part in parts))
        }
        for point in POINTS
    }
    return {"tried": tried, **{name: sum(part[name] for part in parts) for name in COUNTS}}


def run_lane(
    backend: str, lane: int, lanes: int, seed: str, kills: int, end: float
) -> dict[str, Any]:
    """Run a share of the cells of one database, in one catalog."""
    mine = [cell for cell in cells() if cell.backend == backend][lane::lanes]
    random.Random(seed).shuffle(mine)  # mix faults in one catalog
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{backend}-"))
    done, last_report = _Done(), time.monotonic()
    for uri in new_catalog_uri(backend, folder):
        for lives in _rounds(kills // lanes):
            done.count(run_lives(uri, folder, lives, f"{seed}-{lane}-{done.kills}"))
            done.kills += lives
        for number, cell in enumerate(mine):
            if time.monotonic() > end:
                break
            try:
                done.count(run_cell(cell, uri, folder, seed=f"{seed}-{cell}"))
            except Exception:
                done.failed.append(f"{cell}, in {folder}:\n{traceback.format_exc()}")
                print(done.failed[-1], flush=True)
                continue
            of_point = done.tried.setdefault(cell.point, {})
            of_point[cell.fault] = of_point.get(cell.fault, 0) + 1
            if time.monotonic() - last_report > _REPORT_EVERY_S:
                last_report = time.monotonic()
                print(f"{backend}-{lane}: {number + 1} of {len(mine)} faults", flush=True)
    return asdict(done)


@dataclass(slots=True)
class _Done:
    tried: dict[str, dict[str, int]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    kills: int = 0
    commits: int = 0
    rows: int = 0
    orphans: int = 0

    def count(self, checked: Checked) -> None:
        self.commits += checked.commits
        self.rows += checked.rows
        self.orphans += checked.orphans


def _rounds(kills: int) -> list[int]:
    """Split the kills into rounds; each round uses new tables."""
    return [min(_LIVES_AT_ONCE, kills - first) for first in range(0, kills, _LIVES_AT_ONCE)]
