"""Draw one plot per scenario from the JSON of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from benchmarks.checks import Results
from benchmarks.report import TITLES

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

# The same data gives the same SVG, so that a file changes only with its data.
mpl.rcParams["svg.hashsalt"] = "deltasql"
mpl.rcParams["font.size"] = 9
COLOURS = {
    "deltasql": "#0b6e4f",
    "floor": "#9aa0a6",
    "parquet": "#9aa0a6",
    "deltalake": "#c8553d",
    "delta": "#c8553d",
    "ducklake": "#e0a030",
    "imports": "#9aa0a6",
}
MARKERS = {"sqlite": "o", "postgres": "s", "duckdb": "^", "path": "D"}
LINES = {"sqlite": "-", "postgres": "--", "duckdb": ":", "path": "-"}


def draw(results_folder: Path, docs_folder: Path) -> list[Path]:
    """Draw a plot for every scenario with results, and return the files."""
    results = Results(results_folder)
    docs_folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for scenario, title in TITLES.items():
        if scenario not in results.documents:
            continue
        path = docs_folder / f"{scenario}.svg"
        if scenario in ("commit", "bulk"):
            _lines(results, scenario, title, path)
        else:
            _bars(results, scenario, title, path)
        drawn.append(path)
    return drawn


def _lines(results: Results, scenario: str, title: str, path: Path) -> None:
    rows = results.rows(scenario, scenario)
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name in dict.fromkeys(r["contender"] for r in rows):
        own = sorted((r for r in rows if r["contender"] == name), key=lambda r: r["size"])
        backend = own[0]["backend"]
        axes.plot(
            range(len(own)) if scenario == "commit" else [r["size"] for r in own],
            [r["value"] for r in own],
            label=name,
            color=_colour(name),
            marker=MARKERS[backend],
            linestyle=LINES[backend],
            linewidth=2 if name.startswith("deltasql") else 1,
            markersize=4,
        )
    axes.set_yscale("log")
    if scenario == "commit":
        sizes = results.sizes(scenario, "commit")
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.set_xlabel("commits in the table")
    else:
        axes.set_xlabel("live files after the commit")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _finish(axes, title, rows[0]["unit"])
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    save(figure, path)


def _bars(results: Results, scenario: str, title: str, path: Path) -> None:
    groups = list(dict.fromkeys((r["case"], r["size"]) for r in results.rows(scenario)))
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.2 * columns, 2.6 * lines), squeeze=False)
    panels = [panel for line in grid for panel in line]
    for panel, (case, size) in zip(panels, groups, strict=False):
        rows = [r for r in results.rows(scenario, case) if r["size"] == size]
        _panel(panel, rows)
        head = case if scenario in ("start_up", "object_store") else f"{case}, {size:,}"
        _finish(panel, title if len(groups) == 1 else head, rows[0]["unit"])
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    if len(groups) > 1:
        figure.suptitle(title)
    save(figure, path)


def _panel(panel: Axes, rows: list[dict[str, Any]]) -> None:
    names = [r["contender"] for r in rows]
    values = [r["value"] for r in rows]
    panel.barh(names, values, color=[_colour(name) for name in names])
    panel.invert_yaxis()
    if max(values) > 20 * min(values):
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.margins(x=0.25)
    for place, value in enumerate(values):
        panel.text(value, place, f" {value:,.3g}", va="center", fontsize=7)
    panel.tick_params(axis="y", labelsize=7)


def _finish(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(f"{title} ({unit})" if unit else title, fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, path: Path) -> None:
    """Write a plot as SVG; the same data gives the same file."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _colour(name: str) -> str:
    return COLOURS[name.split("-", 1)[0]]
