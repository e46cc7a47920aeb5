"""`make bench-quick` fails for a figure outside its limit."""

from __future__ import annotations

import json

import pytest
from benchmarks import guard
from benchmarks.before_after import CASES

RECORDED = {"commit, sqlite": 2.0, "middle commit, sqlite": 1.5}


def row(case: str, now: float, before: float, floor: float | None) -> dict[str, object]:
    found = {"case": case, "backend": "sqlite", "more_is_better": CASES[case].more_is_better}
    return found | {"now": now, "before": before} | ({} if floor is None else {"floor": floor})


def test_results_within_their_limits_are_not_reported() -> None:
    rows = [
        row("commit", 1.2, 1.0, 0.5),
        row("middle commit", 900.0, 1000.0, 2000.0),
        row("skipping", 10.0, 100.0, None),
    ]
    assert guard.problems(rows, RECORDED) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (row("commit", 1.4, 1.0, 1.0), ["commit, sqlite: 1.40", "baseline"]),
        (row("middle commit", 700.0, 1000.0, 700.0), ["1.43", "baseline"]),
        (row("skipping", 140.0, 100.0, None), ["skipping, sqlite: 1.40", "baseline"]),
        (row("commit", 3.1, 3.0, 1.0), ["commit, sqlite: 3.10", "recorded value is 2.00"]),
        (row("middle commit", 100.0, 100.0, 230.0), ["2.30", "recorded value is 1.50"]),
    ],
)
def test_ratio_outside_its_limit_is_reported(changed: dict[str, object], words: list[str]) -> None:
    (line,) = guard.problems([changed], RECORDED)
    assert all(word in line for word in words), line


def test_measurement_without_a_recorded_value_is_reported() -> None:
    (line,) = guard.problems([row("commit", 1.0, 1.0, 1.0)], {})
    assert "--record" in line


def test_guard_json_has_every_comparison_with_plain_sql() -> None:
    recorded = json.loads(guard.RECORDED.read_text())["slowdowns"]
    wanted = {
        f"{name}, {backend}"
        for name in guard.CASES
        for backend, peers in CASES[name].peers.items()
        if "floor" in peers
    }
    assert recorded.keys() == wanted
