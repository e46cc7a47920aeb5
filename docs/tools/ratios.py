"""Generate the plot of speed ratios to all peers, from the benchmark results."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from docs.tools.svg import AMBER, BLUE, INK, RED, Picture

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@dataclass(frozen=True, slots=True)
class Pair:
    """One bar: a benchmark case, our contender and the peer, as named in the results."""

    label: str
    scenario: str
    case: str
    size: int
    ours: str
    other: str


# Cases in which a peer is faster are listed too.
PEERS: dict[str, tuple[str, tuple[Pair, ...]]] = {
    "deltalake": (
        RED,
        (
            Pair(
                "open a table of 1,000,000 files",
                "open",
                "open",
                1_000_000,
                "deltasql-sqlite",
                "deltalake",
            ),
            Pair(
                "files of one partition of 1,000,000",
                "plan",
                "partition",
                1_000_000,
                "deltasql-sqlite",
                "deltalake",
            ),
            Pair(
                "commit and publish a file, after 10,000 commits",
                "mirror",
                "commit",
                10_000,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "first append of a few rows",
                "api",
                "tiny append",
                0,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "merge into 5,000,000 rows",
                "api",
                "merge",
                5_000_000,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "delete a range of 5,000,000 rows",
                "api",
                "delete range",
                5_000_000,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "update a range of 5,000,000 rows",
                "api",
                "update range",
                5_000_000,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "append 10,000,000 rows",
                "api",
                "large append",
                10_000_000,
                "deltasql-sqlite-sync",
                "deltalake",
            ),
            Pair(
                "data skipping, unclustered column",
                "plan",
                "scattered",
                1_000_000,
                "deltasql-sqlite",
                "deltalake",
            ),
        ),
    ),
    "DuckLake": (
        AMBER,
        (
            Pair(
                "files of one partition of 1,000,000",
                "plan",
                "partition",
                1_000_000,
                "deltasql-sqlite",
                "ducklake-sqlite",
            ),
            Pair(
                "a commit over ten tables, not published",
                "ten_tables",
                "ten tables",
                10,
                "deltasql-sqlite",
                "ducklake-sqlite",
            ),
            Pair(
                "append a few rows",
                "api",
                "tiny append",
                0,
                "deltasql-sqlite-sync",
                "ducklake-sqlite",
            ),
            Pair(
                "append 10,000,000 rows",
                "api",
                "large append",
                10_000_000,
                "deltasql-sqlite-sync",
                "ducklake-sqlite",
            ),
            Pair(
                "data skipping, unclustered column",
                "plan",
                "scattered",
                1_000_000,
                "deltasql-sqlite",
                "ducklake-sqlite",
            ),
        ),
    ),
    "delta-spark": (
        BLUE,
        (
            Pair(
                "append a few rows", "spark", "small appends", 200, "deltasql-sqlite", "delta-spark"
            ),
            Pair(
                "plan a scan of 50,000 files",
                "spark",
                "plan",
                50_000,
                "deltasql-sqlite",
                "delta-spark",
            ),
            Pair(
                "delete a range of 5,000,000 rows",
                "spark",
                "delete range",
                5_000_000,
                "deltasql-sqlite",
                "delta-spark",
            ),
            Pair(
                "append 20,000,000 rows",
                "spark",
                "append",
                20_000_000,
                "deltasql-sqlite",
                "delta-spark",
            ),
            Pair(
                "merge into 5,000,000 rows",
                "spark",
                "merge",
                5_000_000,
                "deltasql-sqlite",
                "delta-spark",
            ),
            Pair(
                "scan 20,000,000 rows",
                "spark",
                "scan",
                20_000_000,
                "deltasql-sqlite",
                "delta-spark",
            ),
        ),
    ),
}


def ratio(pair: Pair) -> float:
    """Return the ratio of our speed to the peer's; below 1 the peer is faster."""
    document = json.loads((RESULTS / f"{pair.scenario}.json").read_text(encoding="utf-8"))
    rows = [
        row for row in document["results"] if (row["case"], row["size"]) == (pair.case, pair.size)
    ]
    found = {row["contender"]: row for row in rows}
    ours, other = found[pair.ours], found[pair.other]
    more = ours["value"] / other["value"]
    return float(more if ours["metric"] == "throughput" else 1 / more)


def ratios() -> str:
    """Return the plot; bars extend from 1× to the right if we are faster, else to the left."""
    bars = [
        (peer, fill, pair, ratio(pair)) for peer, (fill, pairs) in PEERS.items() for pair in pairs
    ]
    left, right, top, step = 290, 800, 50, 21
    low = min(0.25, *(value for *_, value in bars))
    high = max(1000.0, *(value for *_, value in bars))

    def x(value: float) -> float:
        return left + (right - left) * math.log(value / low) / math.log(high / low)

    height = top + step * len(bars) + 48 * len(PEERS) + 10
    picture = Picture(860, height, "Speed of deltasql relative to other libraries")
    picture.text(
        left,
        20,
        "Relative speed (log scale), deltasql on SQLite",
        size=14,
        anchor="start",
        weight=600,
    )
    for mark in (1, 10, 100, 1000):
        picture.line(x(mark), top - 12, x(mark), height - 26, dash="" if mark == 1 else "2 4")
        picture.text(x(mark), height - 10, f"{mark:,}×", size=11.5)
    y, before = top, ""
    for peer, fill, pair, value in bars:
        if peer != before:
            y += 26 if before else 6
            picture.text(
                20, y + 11, f"relative to {peer}", size=13, anchor="start", weight=600, fill=INK
            )
            before = peer
            y += 22
        picture.text(left - 10, y + 11, pair.label, size=11.5, anchor="end")
        start, end = sorted((x(1), x(value)))
        picture.bar(start, y, max(end - start, 1), 14, fill=fill)
        shown = f"{value:,.0f}×" if value >= 10 else f"{value:.1f}×"
        picture.text(max(x(value), x(1)) + 6, y + 11, shown, size=11.5, anchor="start", weight=600)
        y += step
    return picture.to_text()
