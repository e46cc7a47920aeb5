"""Generate docs/benchmarks/results.md from the JSON of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.checks import Check, Results
from benchmarks.harness import EARLIER
from benchmarks.targets import checks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TITLES = {
    "commit": "Commit of one staged file",
    "ten_tables": "One transaction over ten tables",
    "bulk": "Commits of 100,000 files",
    "open": "Open, and open and list",
    "plan": "Cold open and plan to 0.1 % of the files",
    "concurrency": "Processes committing at once",
    "mirror": "The mirror: commit and publish, catch up, checkpoint",
    "durable": "Durable publishing: flushes, and a disk that takes 5 ms longer for each",
    "import": "Import of a log",
    "api": "The API: rows in, rows changed, rows out",
    "spark": "Spark beside plain Parquet and delta-spark",
}
NOTES = {
    "commit": "p50 in milliseconds, mirror off, full durability everywhere (SQLite WAL with "
    "synchronous=FULL, PostgreSQL synchronous_commit=on). `floor-…` is the minimal SQL that "
    "records the same facts; `floor-postgres` uses one statement, `-rowlock` a transaction. "
    "deltalake opens a fresh handle per commit and does not flush its files to disk. DuckLake "
    "inserts one small row: by default the row is inlined in its catalog, `-parquet` writes a "
    "file, `-addfile` registers one. `open` is a cold open of the table in a fresh process; "
    "`new table` is a commit to a new table, measured in turns with commits to tables that have a "
    "history.",
    "ten_tables": "p50 in milliseconds. deltalake makes ten commits, not one atomic commit; "
    "DuckLake writes one small row to each table.",
    "bulk": "Files per second, each with statistics of three columns. The floors write three "
    "statistics rows per file.",
    "open": "Each cold sample in a fresh process, clock started after imports; the files' pages "
    "are in the operating system's cache. `open again` is the next open in the same process, with "
    "the catalog connected. `deltalake-without-files` is deltalake asked to skip "
    "its file list.",
    "plan": "Fresh process, connecting and opening included. `partition` and `clustered` leave "
    "the files of one commit's neighbourhood, `scattered` a column whose disjoint ranges are "
    "spread over all commits (no target). DuckLake reads the first row of its plan.",
    "concurrency": "Commits per second of all processes together; failures are commits that "
    "raised, each process keeps going. `share` is the slowest process's commits over the "
    "fastest's, the worst of all runs.",
    "mirror": "`commit` is the p50 of one staged file in milliseconds, without the mirror and, "
    "`-sync`, with its file in `_delta_log` and a checkpoint every ten versions; deltalake writes "
    "its own log. `drain` is what one reconciler publishes per second, `lag` how long after its "
    "commit a version's file is there, in milliseconds, with 50 commits a second.",
    "durable": "Commits per second of one staged file, until all of them are published, to a table "
    "with 10,000 commits; SQLite with synchronous=FULL. `slow flushes` is the same with 5 ms "
    "more for every fsync and fdatasync of the process, `flushes` how many a commit makes, without "
    "data files. deltalake flushes nothing: a power loss may lose acknowledged commits.",
    "import": "Files per second, each import into a new catalog and in a process of its own; for "
    "deltalake, the rate at which it opens the same table. `commits` is a log of 20 files "
    "a commit, all of them loaded with their versions, `checkpoint` a table whose older commits "
    "are gone; SQL is not compared with the log afterwards. `memory` is the peak of the process, "
    "libraries included.",
    "api": "`tiny append` writes three rows with `write_deltalake`, commits and mirrors them; p50 "
    "in milliseconds after the given number of commits. `deltalake-handle` keeps its table open "
    "between appends; DuckLake keeps its connection, and inlines rows unless it is `-parquet`. "
    "`large append` is rows per second into a new table. `merge` changes rows in the last quarter "
    "of 16 files, "
    "`delete` and `update` one row in a hundred: `range` side by side, `spread` over all files; "
    "each in a process of its own, `merge memory` is its peak. DuckLake, which marks rows as "
    "deleted instead of writing files again, is left out there. `small merge` merges 1,000 rows "
    "(200 into 1,000), `small update` and `small delete` change one, in a process that runs. "
    "`scan` opens a table of small files and reads one in a hundred, by `to_pyarrow_table`, and "
    "`-query` by `QueryBuilder`.",
    "spark": "One session with two cores, everyone in turns. `append` writes rows to a new table, "
    "`scan` aggregates what was written, opening included. `plan` is the first read of a table in "
    "a session: open it, plan a query of all files (`plan filtered`: of one in a thousand), caches "
    "of both emptied before. `merge`, `delete`, `update` as in the API's scenario. `small appends` "
    "is one of 200 appends in a row.",
}


def write(results_folder: Path, docs_folder: Path) -> Path:
    """Write the page and return its path."""
    results = Results(results_folder)
    found, before = checks(results), checks(Results(results_folder / EARLIER))
    lines = ["# Benchmark results", "", "Generated by `make bench`; do not edit.", ""]
    lines += _environment(results)
    every = [check for group in found.values() for check in group]
    met = sum(check.met for check in every)
    lines += ["", f"**{met} of {len(every)} targets met.**", ""]
    for scenario, title in TITLES.items():
        if scenario not in results.documents:
            continue
        time = results.documents[scenario]["environment"]["time"]
        lines += [f"## {title}", "", f"{NOTES[scenario]} Run at {time}.", ""]
        lines += [f"![{title}]({scenario}.svg)", ""]
        lines += _table(scenario, results)
        lines += ["", *_targets(found[scenario], before[scenario]), ""]
    docs_folder.mkdir(parents=True, exist_ok=True)
    path = docs_folder / "results.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def summary(results_folder: Path) -> str:
    """Return one line per target, for the terminal."""
    results = Results(results_folder)
    lines = []
    if any(document["quick"] for document in results.documents.values()):
        lines.append("  A quick run: too small to check targets.")
    for scenario, group in checks(results).items():
        for check in group:
            mark = "met   " if check.met else "MISSED"
            lines.append(
                f"  {mark} {scenario}: {check.promise}: {_number(check)} (wanted {_wanted(check)})"
            )
    return "\n".join(lines)


def _environment(results: Results) -> list[str]:
    document = next(iter(results.documents.values()))
    environment = document["environment"]
    versions = ", ".join(f"{k} {v}" for k, v in environment["versions"].items())
    settings = ", ".join(f"{k}={v}" for k, v in environment["settings"].items())
    lines = [
        f"{environment['cpus']} cores, {environment['system']}; {versions}; "
        f"PostgreSQL: {settings}.",
        "Two shared cores are noisy: contenders are measured in turns, and medians are shown. "
        "Compare ratios, not times.",
        "`run before` is the value of the same target in the previous run.",
    ]
    if any(document["quick"] for document in results.documents.values()):
        lines += ["", "**A quick run: sizes and samples are too small to check targets.**"]
    return lines


def _table(scenario: str, results: Results) -> list[str]:
    rows = results.rows(scenario)
    columns = sorted({(r["case"], r["size"]) for r in rows}, key=lambda c: (_order(rows, c), c[1]))
    names = list(dict.fromkeys(r["contender"] for r in rows))
    heads = [_head(scenario, case, size) for case, size in columns]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(columns)]
    for name in names:
        cells = [_cell(results.row(scenario, name, case, size)) for case, size in columns]
        label = f"**{name}**" if name.startswith("deltasql") else name
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def _order(rows: Sequence[dict[str, Any]], column: tuple[str, int]) -> int:
    return next(i for i, r in enumerate(rows) if r["case"] == column[0])


def _head(scenario: str, case: str, size: int) -> str:
    if scenario == "ten_tables":
        return "ms"
    titles = {"commit": f"{case}, {size:,} commits", "bulk": f"to {size:,}"}
    if scenario in titles:
        return titles[scenario]
    if scenario == "durable":
        return f"{case}, {size:,} commits"
    if scenario == "mirror":
        unit = {"commit": "commits", "drain": "versions", "lag": "commits/s"}.get(case, "files")
        return f"{case}, {size:,} {unit}"
    if scenario in ("api", "spark"):
        units = {"tiny append": "commits", "small appends": "appends"}
        files = case.startswith("plan") or (scenario, case) == ("api", "scan")
        return f"{case}, {size:,} {'files' if files else units.get(case, 'rows')}"
    return f"{case}, {size:,}" + (" processes" if scenario == "concurrency" else " files")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    value = row["value"]
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if row["unit"] in ("MB", "ms") and row["metric"] != "latency":
        text += f" {row['unit']}"
    extra = row["extra"]
    if "slowest_share" in extra:
        text += f" (share {extra['slowest_share']:.2f}"
        text += f", {extra['failures']:.0f} failed)" if extra["failures"] else ")"
    return text


def _targets(group: Sequence[Check], before: Sequence[Check]) -> list[str]:
    if not group:
        return []
    earlier = {check.promise: _number(check) for check in before}
    lines = ["| target | wanted | measured | run before | | |", "|---|---:|---:|---:|---|---|"]
    for check in group:
        cells = (
            check.promise,
            _wanted(check),
            _number(check),
            earlier.get(check.promise, "–"),
            check.detail,
            "met" if check.met else "**missed**",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _number(check: Check) -> str:
    value = check.measured
    digits = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
    return f"{digits}{check.unit}"


def _wanted(check: Check) -> str:
    sign = "≤" if check.at_most else "≥"
    value = check.wanted
    return f"{sign} {value:,.0f}{check.unit}" if value == int(value) else f"{sign} {value:.3g}×"
