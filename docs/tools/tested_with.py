"""Generate the page of the releases that `make test-matrix` ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.tools.text import table

ROWS = Path(__file__).with_name("matrix")
TITLES = {
    "databases": "Databases that hold the log",
    "stores": "Object stores",
    "spark_stores": "Object stores on Spark",
    "engines": "Engines and libraries",
}
COMMIT = "at commit"
# In the order of the columns.
BEHAVIOURS = {
    "commit": "a transaction over two tables, and appends to one of them",
    "conflict": "of two transactions that overwrite a table, the later one fails and changes "
    "nothing; two appends both succeed",
    "lost_answer": "each response of the database or of the store during a commit is lost once: "
    "the commit is applied exactly once, or the error says that it failed. For a database in a "
    "file and a local folder, the process is killed after the COMMIT instead",
    "bulk": "5,000 files are added in one commit and removed in the next one",
    "vacuum": "the files of replaced rows are deleted, and only those",
    "migrate": "a plain Delta table is imported, cut over, written to and exported",
}


def tested_with_page() -> str:
    """Return the page, from the results that `make test-matrix` keeps."""
    parts = [
        "# Tested releases",
        "`make test-matrix` runs the same behaviours with each of these releases. After each "
        "step, stock deltalake reads the published log and must see the same rows.",
        "\n".join(f"- **{_words(name)}**: {text}" for name, text in BEHAVIOURS.items()),
        "`ok` means that all checks of the behaviour passed; `-` means that the behaviour does not "
        "apply. *at commit* is the commit of deltasql that was tested: the last commit that "
        "changed more than documentation. It differs between rows. If the commit has the prefix "
        "`≤`, the tested code is older than this commit.",
        "[Supported releases](versions.md) lists the releases that deltasql accepts, and the "
        "results of each check with each release of PySpark.",
    ]
    for module, title in TITLES.items():
        path = ROWS / f"{module}.json"
        if path.exists():
            parts += [f"## {title}", _table(json.loads(path.read_text("utf-8")))]
    return "\n\n".join(parts)


def _table(rows: list[dict[str, Any]]) -> str:
    heads = ("component", "release", *map(_words, BEHAVIOURS), "other checks", COMMIT)
    return table(heads, [_row(each) for each in rows])


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    results = row["results"]
    common = [results.get(name, "-") for name in BEHAVIOURS]
    others = [f"{_words(name)}: {each}" for name, each in results.items() if name not in BEHAVIOURS]
    if row["skipped"]:
        others = [f"not run: {row['skipped']}"]
    others_text = "<br>".join(others)
    return row["component"], row["release"], *common, others_text, row.get("commit") or "-"


def _words(name: str) -> str:
    return name.replace("_", " ")
