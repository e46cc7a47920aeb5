"""Generate `docs/reliability/index.md`: each claim, its tests, how often they ran, and losses.

The text is in `reliability.toml`. The figures come from the results of the runs and from the
tables of the other pages.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "reliability"
TESTS = Path(__file__).parents[2] / "tests"
HEAD = (
    ("claim", "how it was tested", "how often, and how to repeat it", "lost"),
    ("---", "---", "---", "--:"),
)


def index_page() -> str:
    """Return the page without the notice that it is generated."""
    text = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    secrets = text["secrets"]
    rows = [
        *HEAD,
        _row(text["faults"], *_faults()),
        *_environment(text["environment"]),
        _row(text["serializability"], *_serializability()),
        _row(text["soak"], *_soak()),
        _row(text["hostile"], _inputs(), "0"),
        _row(secrets, secrets["many"], "0"),
        _row(text["scale"], _scale(), "–"),
    ]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return f"{text['intro']}\n{table}\n\n{text['end']}"


def _row(text: dict[str, str], many: str, lost: str) -> tuple[str, ...]:
    return (text["claim"], text["how"], many, lost)


def _faults() -> tuple[str, str]:
    found = json.loads((FOLDER / "faults.json").read_text())
    backends: list[dict[str, Any]] = list(found["backends"].values())
    tried = sum(sum(each.values()) for one in backends for each in one["tried"].values())
    kills, commits = (sum(each[name] for each in backends) for name in ("kills", "commits"))
    many = (
        f"{tried:,} of {found['of']:,} faults, {kills} external kills, "
        f"{commits:,} commits checked; seed `{found['seed']}`; `make faults`"
    )
    return many, str(sum(found["broken"].values()))


def _environment(claims: dict[str, str]) -> list[tuple[str, ...]]:
    tables = _tables("environment.md")
    rows = []
    for test, claim in claims.items():
        fault, _, many, _, lost = next(row for row in tables if f"{test}`" in row[1])
        (path,) = TESTS.rglob(test)
        counts = f"{many}; `{path.relative_to(TESTS.parent)}`"
        rows.append((claim, f"[{fault}](environment.md)", counts, lost))
    return rows


def _serializability() -> tuple[str, str]:
    together = next(row for row in _tables("serializability.md") if row[0] == "together")
    _, rounds, committed, failed, _, _, killed, contradictions = together
    page = (FOLDER / "serializability.md").read_text(encoding="utf-8")
    seeds = re.findall(r"`[0-9a-f]{8}`", page)
    many = (
        f"{rounds} rounds, {committed} commits, {failed} failed, {killed} clients killed; "
        f"seeds {', '.join(dict.fromkeys(seeds))}; `make serializability`"
    )
    older = re.search(r"The last long run was made (before [^:]*):", page)
    if older is not None:  # remove the sentence from the page after a new run
        many += f". This run was made {older[1]}; `make test` runs these for some seconds"
    return many, contradictions


def _soak() -> tuple[str, str]:
    found = json.loads((FOLDER / "soak.json").read_text())
    runs = found["runs"]
    done = sum(run["outcomes"]["done"] for run in runs)
    minutes = sum(run["seconds"] for run in runs) / 60
    titles, seeds = (dict.fromkeys(run[key] for run in runs) for key in ("title", "seed"))
    many = (
        f"{found['writers']} writers and {found['readers']} readers for {minutes:.0f} minutes on "
        f"{' and '.join(titles)}: {done:,} operations, {sum(run['commits'] for run in runs):,} "
        f"commits; seed {', '.join(f'`{each}`' for each in seeds)}; `make soak`"
    )
    wrong = sum(len(run["problems"]) + run["outcomes"]["error"] for run in runs)
    return many, str(wrong)


def _inputs() -> str:
    rows = [row for row in _tables("hostile-input.md") if row[-1].startswith("`")]
    numbers = [re.match(r"[\d,]+", row[1]) for row in rows]
    total = sum(int(each[0].replace(",", "")) for each in numbers if each)
    return (
        f"more than {total // 100 * 100:,} inputs, the same each time, and ten times as many new "
        "ones with `DELTASQL_EXPLORE=1`; `make test`"
    )


def _scale() -> str:
    command = "`python -m benchmarks scale`"
    grown = f"[growth curves](scale.md), {command}" if (FOLDER / "scale.md").is_file() else command
    return f"statements at ten times the size: `tests/test_scale.py`; {grown}"


def _tables(page: str) -> list[list[str]]:
    """Return the rows of all tables of a page."""
    lines = (FOLDER / page).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
