"""Progress bars on stderr; nothing is printed if stderr is not a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import rich.progress
    from rich.progress import TaskID

    from deltasql.model.progress import OnProgress, Progress


@contextmanager
def progress(*, first: str | None = None, color: bool = True) -> Iterator[OnProgress | None]:
    """Yield a callback that draws a progress bar, or None if stderr is not a terminal.

    `first` is the title that is shown before the first call.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with _bar(color=color) as bar:
        tasks: dict[str, TaskID] = {}

        def task_of(title: str) -> TaskID:
            if title not in tasks:  # a new phase replaces the bar of the last one
                for task in tasks.values():
                    bar.remove_task(task)
                tasks.clear()
                tasks[title] = bar.add_task(title, total=None, facts="")
            return tasks[title]

        def draw(state: Progress) -> None:
            bar.update(
                task_of(title_text(state)),
                completed=state.done,
                total=state.total or None,
                facts=facts_text(state),
            )

        if first is not None:
            task_of(first)
        yield draw


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
    """Return a rate as a string; the string is empty for 0, which means that it is not known yet.

    >>> rate_text(51234.5, "files"), rate_text(0.25, "commits"), rate_text(0, "files")
    ('51,234 files/s', '0.2 commits/s', '')
    """
    if per_second <= 0:
        return ""
    number = f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"
    return f"{number} {unit}/s"


def title_text(state: Progress) -> str:
    """Return the table and the phase of a progress as a string.

    >>> from deltasql.model.progress import Progress
    >>> title_text(Progress("sales", "loading", "commits")), title_text(Progress("", "loading", ""))
    ('sales: loading', 'loading')
    """
    return f"{state.table}: {state.phase}" if state.table else state.phase


def facts_text(state: Progress) -> str:
    """Return the counts, the rate and the remaining time of a progress as a string.

    >>> from deltasql.model.progress import Progress
    >>> facts_text(Progress("sales", "loading", "commits", 500, 1500, 1862.5, files=15_828_000))
    '500 of 1,500, 8,498 files/s, 1:02:05 left'
    >>> facts_text(Progress("sales", "verifying", "commits"))
    ''
    """
    facts = [f"{state.done:,} of {state.total:,}"] if state.total else []
    if state.files:
        facts.append(rate_text(state.files_per_second, "files"))
    else:
        facts.append(rate_text(state.rate, state.unit))
    if state.eta_s is not None:
        minutes, seconds = divmod(int(state.eta_s), 60)
        facts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
    return ", ".join(fact for fact in facts if fact)


def _bar(*, color: bool) -> rich.progress.Progress:
    from rich import progress as rich_progress
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    return rich_progress.Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        console=Console(stderr=True, no_color=not color),
        transient=True,  # the bar is removed at the end, because the report is printed next
    )
