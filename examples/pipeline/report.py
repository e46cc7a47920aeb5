"""The output of the job: lines of text and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from pipeline import Load

Sales = dict["date", float]


def heading(text: str) -> None:
    """Print the title of a step."""
    print(f"\n{text}", flush=True)


def line(text: str) -> None:
    """Print an indented line."""
    print(f"  {text}", flush=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as an aligned table."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    for row in cells:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        line("  ".join((first.strip().ljust(widths[0]), *others)))


def loaded(load: Load, language: str) -> None:
    """Print the result of loading a batch."""
    line(
        f"batch {load.batch} in {language}: customers {_changes(load.customers)}; orders "
        f"{_changes(load.orders)}, {load.repeated} repeated, {load.quarantined} quarantined"
    )


def _changes(metrics: Mapping[str, int]) -> str:
    return f"{metrics['num_inserted_rows']} new, {metrics['num_updated_rows']} changed"


def plot(known: Mapping[int, Sales], problems: Mapping[str, int], path: Path) -> Path:
    """Plot the sales of each day after every batch, and the number of rows per problem."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2))
    days = sorted({day for sales in known.values() for day in sales})
    width = 0.8 / len(known)
    for number, (batch, sales) in enumerate(known.items()):
        left.bar(
            [place + (number - (len(known) - 1) / 2) * width for place in range(len(days))],
            [sales.get(day, 0) / 1000 for day in days],
            width,
            color=pyplot.colormaps["Blues"](0.35 + 0.6 * (number + 1) / len(known)),
            label=f"after batch {batch}",
        )
    left.set_xticks(range(len(days)), [f"{day:%d %b}" for day in days])
    left.set(title="Revenue by day, as known at the time", ylabel="thousands")
    left.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    right.barh(list(problems), list(problems.values()), color="#c44e52")
    right.set(title="Quarantined rows")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
