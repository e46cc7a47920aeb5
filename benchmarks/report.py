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
    "start_up": "Start-up of commands",
    "ten_tables": "One transaction over ten tables",
    "bulk": "Commits of 100,000 files",
    "open": "Open, and open and list",
    "plan": "Cold open and plan to 0.1 % of the files",
    "concurrency": "Processes committing at once",
    "mirror": "The mirror: commit and publish, catch up, checkpoint",
    "durable": "Durable publishing: flushes, and a disk that takes 5 ms longer for each",
    "object_store": "Object store with 30 ms per request",
    "import": "Import of a log",
    "api": "The API: rows in, rows changed, rows out",
    "spark": "Spark, compared with plain Parquet and delta-spark",
    "vectors": "Deletion vectors, compared with rewritten files and delta-spark",
}
NOTES = {
    "commit": "Median time of a commit in milliseconds, without publishing, with full durability "
    "(SQLite: WAL with synchronous=FULL; PostgreSQL: synchronous_commit=on). `floor-…` is the "
    "minimal SQL that stores the same information: `floor-postgres` uses one statement, "
    "`floor-postgres-rowlock` a transaction. deltalake opens the table again for each commit and "
    "does not flush its files to disk. DuckLake inserts one small row. By default it stores the "
    "row in its catalog; with `-parquet` it writes a file, and with `-addfile` it registers an "
    "existing file. `open` is the time to open the table in a new process. `new table` is a "
    "commit to a new table, measured in turns with commits to tables that have a history.",
    "start_up": "Median CPU time in milliseconds of a new process, and of a process that only "
    "imports the libraries that the command cannot do without, with compiled modules.",
    "ten_tables": "Median time in milliseconds. deltalake makes ten commits, not one atomic "
    "commit. DuckLake writes one small row to each table.",
    "bulk": "Files per second. Each file has statistics of three columns, for which the floors "
    "write three rows per file. `register` creates a table from existing small Parquet files, and "
    "reads the statistics of four columns from their footers: with `convert_to_deltalake` in "
    "deltasql and deltalake, with `ducklake_add_data_files` in DuckLake.",
    "open": "Each cold open runs in a new process. The time starts after the imports, and the "
    "files are in the cache of the operating system. `open again` is the next open in the same "
    "process, with an open connection. `deltalake-without-files` is deltalake with "
    "`without_files=True`. DuckLake attaches its catalog and describes the table. `list cold` is "
    "an open and the first query, which lists all files (in DuckLake `ducklake_list_files`). "
    "`refresh` is the time in which an open table gets to a version that another process "
    "committed: deltasql takes a new snapshot, deltalake calls `update_incremental`, DuckLake "
    "describes the table. `refresh, list` includes a list of all files, which has the new file.",
    "plan": "The time in a new process, with connecting and opening the table. `partition` and "
    "`clustered` filter by a column whose matching files are in neighbouring commits. "
    "`scattered` filters by a column whose matching files are spread over all commits (no "
    "target). DuckLake reads the first row of its plan.",
    "concurrency": "Commits per second of all processes together. Failures are commits that "
    "raised an error; the process then continues. `share` is the number of commits of the "
    "slowest process divided by that of the fastest, the worst of all runs.",
    "mirror": "`commit` is the median time of a commit of one staged file in milliseconds, "
    "without publishing; `-sync` includes the commit file in `_delta_log` and a checkpoint every "
    "ten versions. deltalake writes its own log. `drain` is the number of versions that one "
    "reconciler publishes per second. `lag` is the time in milliseconds from a commit until its "
    "file is published, at 50 commits per second.",
    "durable": "Published commits per second of one staged file, to a table with 10,000 commits, "
    "on SQLite with synchronous=FULL. `slow flushes` is the same with 5 ms added to every fsync "
    "and fdatasync of the process. `flushes` is the number of flushes per commit, without data "
    "files. deltalake flushes nothing: a power loss may lose acknowledged commits.",
    "object_store": "Data and log are on a local S3 server that delays each request by 30 ms. Each "
    "append is published before the call returns. Times are medians in milliseconds, `8 threads` "
    "is appends per second of eight threads with a table each, and `requests` is the number of "
    "requests of one append. A waiting version is one that was committed without publishing.",
    "import": "Files per second. Each import runs in a new process and loads into a new catalog. "
    "For deltalake, it is the rate at which it opens the same table. `commits` is a log with 20 "
    "files per commit, of which all versions are loaded. `checkpoint` is a table whose older "
    "commits were cleaned up. The result is not verified. `memory` is the peak memory of the "
    "process, including libraries.",
    "api": "`tiny append` writes, commits and publishes three rows with `write_deltalake`: the "
    "median time in milliseconds after the given number of commits. `deltalake-handle` keeps its "
    "table open between appends. DuckLake keeps its connection open and stores the rows in its "
    "catalog, except with `-parquet`. `large append` is rows per second into a new table. "
    "`merge` changes rows in the last quarter of 16 files. `delete` and `update` change one row "
    "in a hundred: neighbouring rows (`range`), or rows in all files (`spread`). Each of them "
    "runs in a new process; `merge memory` is the peak memory. DuckLake is not included there, "
    "because it marks rows as deleted instead of rewriting files. In a running process, `small "
    "merge` merges 1,000 rows (200 into a table of 1,000), and `small update` and `small delete` "
    "change one row. `scan` opens a table of small files and reads one file in a hundred, with "
    "`to_pyarrow_table`, or with `QueryBuilder` (`-query`).",
    "spark": "All systems run in turns, in one session with two cores. `deltasql-sqlite` is the "
    "Python functions, and `deltasql-catalog` is SQL through the Spark catalog. `append` writes "
    "rows to a new table. `scan` opens the table and aggregates these rows. `plan` is the first "
    "read of a table in a session, with empty caches: it opens the table and plans a query of all "
    "files, or of one file in a thousand (`plan filtered`). `merge`, `delete` and `update` are the "
    "same as in the API's scenario. `small appends` is the time of one of 200 consecutive appends.",
    "vectors": "Median time in milliseconds to change one row in a hundred of four files of more "
    "than 100 MB: neighbouring rows of one file (`range`), or rows in all files (`spread`). "
    "`deltasql-rewriting` and `deltasql-vectors` run on DuckDB, without and with "
    "`delta.enableDeletionVectors`. All systems run in turns, in one process.",
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
        if (docs_folder / f"{scenario}.svg").exists():
            lines += [f"![{title}]({scenario}.svg)", ""]
        lines += _table(scenario, results)
        lines += [*_targets(found.get(scenario, []), before.get(scenario, [])), ""]
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
        "Two shared cores are noisy: systems are measured in turns, and medians are shown. "
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
    if scenario == "start_up":
        return f"`{case}`"
    bulk = f"{'to' if case == 'bulk' else case} {size:,}"
    titles = {"commit": f"{case}, {size:,} commits", "bulk": bulk}
    if scenario in titles:
        return titles[scenario]
    if scenario == "object_store":
        return case
    if scenario == "durable":
        return f"{case}, {size:,} commits"
    if scenario == "mirror":
        unit = {"commit": "commits", "drain": "versions", "lag": "commits/s"}.get(case, "files")
        return f"{case}, {size:,} {unit}"
    if scenario in ("api", "spark", "vectors"):
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
    lines = ["", "| target | wanted | measured | run before | | |", "|---|---:|---:|---:|---|---|"]
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
