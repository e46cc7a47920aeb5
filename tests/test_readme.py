"""The performance claims of the README match the benchmark results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
RESULTS = (ROOT / "docs" / "benchmarks" / "results.md").read_text("utf-8")
# Each claim and the benchmark results that it needs.
CLAIMS = {
    "more than 100 times as fast as deltalake, on SQLite and PostgreSQL": (
        "sqlite, 10,000 commits: commit and publish faster than deltalake",
        "postgres, 10,000 commits: commit and publish faster than deltalake",
    ),
    "more than 5 times as fast as deltalake": (
        "sqlite, tiny append at 0 commits: faster than deltalake",
        "postgres, tiny append at 0 commits: faster than deltalake",
    ),
    "more than 40 times": (
        "sqlite, tiny append at 10,000 commits: faster than deltalake",
        "postgres, tiny append at 10,000 commits: faster than deltalake",
    ),
    "more than 10 times as fast as DuckLake, on SQLite and PostgreSQL": (
        "sqlite: faster than DuckLake",
        "postgres: faster than DuckLake",
    ),
    "more than 200 times as fast as deltalake, on SQLite and PostgreSQL": (
        "sqlite, 1,000,000 files: open, faster than deltalake",
        "postgres, 1,000,000 files: open, faster than deltalake",
    ),
    "more than 5 times as fast as delta-spark": ("small appends, 200: faster than delta-spark",),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_matches_the_benchmarks(claim: str) -> None:
    assert claim in README
    times = float(claim.split()[2])
    for target in CLAIMS[claim]:
        assert measured(target) >= times


def test_readme_has_no_other_claims() -> None:
    assert re.findall(r"more than \d+ times[^;\n]*", README) == list(CLAIMS)


def test_merges_on_spark_are_as_fast_or_faster() -> None:
    assert "more than 5 times as fast as delta-spark; merges as fast or faster" in README
    assert measured("merge, 5,000,000: faster than delta-spark") >= 1


def test_every_row_of_the_comparison_names_existing_tests() -> None:
    page = (ROOT / "docs" / "explanation" / "comparison.md").read_text("utf-8")
    backed = dict(re.findall(r"^\| ([a-z][^|]*) \| ([^|]*) \|", page, re.M))
    assert [*backed] == re.findall(r"^\| ([a-z][^|]*) \| yes", README, re.M)
    assert all("::" in cell or "](" in cell for cell in backed.values())
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page):
        assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def measured(target: str) -> float:
    found = re.search(rf"^\| {re.escape(target)} \| [^|]* \| ([\d,.]+)× \|", RESULTS, re.M)
    assert found is not None, target
    return float(found[1].replace(",", ""))
