"""Bars on stderr for what takes long; nothing at all where nobody looks."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

    from deltasql.migrate.export_report import ExportProgress
    from deltasql.migrate.import_report import ImportProgress
    from deltasql.migrate.rebuild import RebuiltTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """How far something is: what it is about, how much of how much is done, and how fast."""

    title: str
    done: int
    total: int | None
    rate: str = ""
    eta_s: float | None = None


def of_import(progress: ImportProgress) -> Step:
    """Tell how far an import is, by its commits; its speed is told in files."""
    return Step(
        f"{progress.table or progress.source}: {progress.phase}",
        progress.commits,
        progress.total_commits or None,
        rate_text(progress.files_per_second, "files"),
        progress.eta_s if progress.phase == "loading" else None,
    )


def of_export(progress: ExportProgress) -> Step:
    """Tell how far an export is, by its files where they are copied."""
    if progress.total_files:
        done, total, unit = progress.files, progress.total_files, "files"
    else:
        done, total, unit = progress.commits, progress.total_commits, "commits"
    return Step("exporting", done, total, rate_text(progress.rate, unit), progress.eta_s)


def of_rebuild(table: RebuiltTable) -> Step:
    """Tell how far the table is that is being loaded."""
    total = None
    if table.first_version is not None and table.last_version is not None:
        total = table.last_version - table.first_version + 1
    return Step(table.name or table.location, table.loaded, total)


@contextmanager
def progress(
    step_of: Callable[[T], Step], *, color: bool = True
) -> Iterator[Callable[[T], None] | None]:
    """Yield what draws the bar, or nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bar(color=color) as bar:
        task = bar.add_task("", total=None, rate="", eta="")

        def draw(state: T) -> None:
            step = step_of(state)
            bar.update(
                task,
                description=step.title,
                completed=step.done,
                total=step.total,
                rate=step.rate,
                eta=eta_text(step.eta_s),
            )

        yield draw


@contextmanager
def busy(title: str, *, color: bool = True) -> Iterator[None]:
    """Show that something is under way whose end is not known."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, no_color=not color).status(Text(title)):
        yield


def rate_text(per_second: float, unit: str) -> str:
    """Return a rate as people read it.

    >>> rate_text(51234.5, "files"), rate_text(0.25, "commits"), rate_text(0, "files")
    ('51,234 files/s', '0.2 commits/s', '')
    """
    if per_second <= 0:
        return ""
    number = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"
    return f"{number} {unit}/s"


def eta_text(seconds: float | None) -> str:
    """Return how long it will take.

    >>> eta_text(7.4), eta_text(3725), eta_text(None)
    ('0:00:07 left', '1:02:05 left', '')
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02} left"


def _bar(*, color: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}", markup=False),
        console=Console(stderr=True, no_color=not color),
        transient=True,  # what stays is the report
    )
