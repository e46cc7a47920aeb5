"""Fail if this tree has become slower than the baseline release or than its recorded ratio to SQL.

`make bench-quick` (`python -m benchmarks.guard`) takes less than five minutes. It runs a few cases
of `benchmarks.before_after`, with the baseline release, this tree and plain SQL by turns. The
slowdown of a case is the time of this tree divided by that of the baseline or of plain SQL. The
limit against the baseline is fixed; that against plain SQL depends on the slowdown that `--record`
wrote to `benchmarks/guard.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.before_after import BEFORE, NOW, compare
from benchmarks.harness import environment

RECORDED = Path(__file__).with_name("guard.json")
CASES = ("commit", "middle commit", "skipping")
ROUNDS = 3
MOST_OVER_BASELINE = 1.3
"""The limit of the slowdown compared with the baseline."""
MOST_OVER_RECORDED = 1.5
"""The limit of the slowdown compared with plain SQL, as a multiple of the recorded slowdown."""


def slowdown(row: dict[str, object], other: str) -> float:
    """Return how many times as long this tree takes as another system."""
    now, than = float(str(row[NOW])), float(str(row[other]))
    return than / now if row["more_is_better"] else now / than


def floor_slowdowns(rows: list[dict[str, object]]) -> dict[str, float]:
    """Return the slowdown compared with plain SQL, for each case that plain SQL takes part in."""
    return {_name(row): round(slowdown(row, "floor"), 2) for row in rows if "floor" in row}


def problems(rows: list[dict[str, object]], recorded: dict[str, float]) -> list[str]:
    """Return a line for each slowdown above its limit, and for each that was never recorded."""
    found = []
    for row in rows:
        over = slowdown(row, BEFORE)
        if over > MOST_OVER_BASELINE:
            found.append(
                f"{_name(row)}: {over:.2f} times as long as the baseline, "
                f"the limit is {MOST_OVER_BASELINE}"
            )
    for name, over in floor_slowdowns(rows).items():
        if name not in recorded:
            found.append(f"{name}: not recorded, run `python -m benchmarks.guard --record`")
        elif over > recorded[name] * MOST_OVER_RECORDED:
            found.append(
                f"{name}: {over:.2f} times as long as plain SQL; the recorded value is "
                f"{recorded[name]:.2f}, the limit is {recorded[name] * MOST_OVER_RECORDED:.2f}"
            )
    return found


def _name(row: dict[str, object]) -> str:
    return f"{row['case']}, {row['backend']}"


def main() -> None:
    """Run the cases; exit with 1 if a slowdown is above its limit."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard",
        description="Fail if this tree is too slow, compared with the baseline or with plain SQL.",
        epilog="example: python -m benchmarks.guard --record",
    )
    parser.add_argument("--record", action="store_true", help="store the ratios to plain SQL")
    options = parser.parse_args()
    rows = compare(list(CASES), ROUNDS)
    if options.record:
        kept = {"environment": environment(), "slowdowns": floor_slowdowns(rows)}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
        return
    found = problems(rows, json.loads(RECORDED.read_text())["slowdowns"])
    if found:
        sys.exit("\n".join(found))
    print("every slowdown is within its limit")


if __name__ == "__main__":
    main()
