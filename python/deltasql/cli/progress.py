"""Progress bars on stderr; nothing is printed if stderr is not a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from deltasql.migrate.exporting.report import ExportProgress
    from deltasql.migrate.importing.report import ImportProgress
    from deltasql.migrate.rebuild import RebuiltTable
    from deltasql.mirror.publish.reconcile import Step as MirrorStep
    from deltasql.model.progress import Progress as PhaseProgress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """The state of one progress bar: title, completed and total items, rate and remaining time."""

    title: str
    done: int
    total: int | None
    rate: str = ""
    eta_s: float | None = None


def of_import(progress: ImportProgress) -> Step:
    """Return the progress of an import: the loaded commits, and the rate in files per second."""
    title = f"{progress.table or progress.source}: {progress.phase}"
    if progress.phase != "loading":
        return Step(title, 0, None)
    rate = rate_text(progress.files_per_second, "files")
    return Step(title, progress.commits, progress.total_commits or None, rate, progress.eta_s)


def of_phase(progress: PhaseProgress) -> Step:
    """Return the progress of the current phase."""
    rate = rate_text(progress.rate, progress.unit)
    title = f"{progress.table}: {progress.phase}"
    return Step(title, progress.done, progress.total or None, rate, progress.eta_s)


def of_export(progress: ExportProgress) -> Step:
    """Return the progress of an export: in data files if they are copied, else in commits."""
    if progress.total_files:
        done, total, unit = progress.files, progress.total_files, "files"
    else:
        done, total, unit = progress.commits, progress.total_commits, "commits"
    return Step("exporting", done, total, rate_text(progress.rate, unit), progress.eta_s)


def of_rebuild(table: RebuiltTable) -> Step:
    """Return the progress of the table that a rebuild is loading."""
    total = None
    if table.first_version is not None and table.last_version is not None:
        total = table.last_version - table.first_version + 1
    return Step(table.name or table.location, table.loaded, total)


def of_mirror(step: MirrorStep) -> Step:
    """Return the progress of a reconciler at the table that it published last."""
    done = step.version + 1
    return Step(f"{step.table}: publishing", done, done + step.pending)


@contextmanager
def progress(
    step_of: Callable[[T], Step], *, first: str | None = None, color: bool = True
) -> Iterator[Callable[[T], None] | None]:
    """Yield a callback that draws the progress bar, or None if stderr is not a terminal.

    `first` is the title that is shown before the first step, when the total is not known yet.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with _bar(color=color) as bar:
        tasks: dict[str, TaskID] = {}

        def draw(step: Step) -> None:
            if step.title not in tasks:  # a new phase replaces the bar of the last one
                for task in tasks.values():
                    bar.remove_task(task)
                tasks.clear()
                tasks[step.title] = bar.add_task(step.title, total=step.total, facts="")
            bar.update(
                tasks[step.title], completed=step.done, total=step.total, facts=facts_text(step)
            )

        if first is not None:
            draw(Step(first, 0, None))
        yield lambda state: draw(step_of(state))


@contextmanager
def counted(title: str, *, color: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that takes the completed and the total count and draws a progress bar.

    It does nothing if stderr is not a terminal.
    """

    def step(state: tuple[int, int]) -> Step:
        return Step(title, *state)

    with progress(step, first=title, color=color) as draw:
        yield lambda done, total: None if draw is None else draw((done, total))


@contextmanager
def busy(title: str, *, color: bool = True) -> Iterator[None]:
    """Show a spinner while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, no_color=not color).status(Text(title)):
        yield


def rate_text(per_second: float, unit: str) -> str:
    """Return a rate as a string; the string is empty if the rate is not known.

    >>> rate_text(51234.5, "files"), rate_text(0.25, "commits"), rate_text(0, "files")
    ('51,234 files/s', '0.2 commits/s', '')
    """
    if per_second <= 0:
        return ""
    number = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"
    return f"{number} {unit}/s"


def facts_text(step: Step) -> str:
    """Return the counts, the rate and the remaining time of a step as a string.

    >>> facts_text(Step("loading", 500, 1500, "8,498 files/s", 3725))
    '500 of 1,500, 8,498 files/s, 1:02:05 left'
    >>> facts_text(Step("verifying", 0, None))
    ''
    """
    facts = [] if step.total is None else [f"{step.done:,} of {step.total:,}"]
    if step.rate:
        facts.append(step.rate)
    if step.eta_s is not None:
        minutes, seconds = divmod(int(step.eta_s), 60)
        facts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
    return ", ".join(facts)


def _bar(*, color: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        console=Console(stderr=True, no_color=not color),
        transient=True,  # the bar is removed at the end, because the report is printed next
    )
