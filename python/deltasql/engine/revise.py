"""Write files again in which some rows are dropped or have new values.

Rows are known by their places, so most of a file need not be looked at: row groups without such
a row, and columns without a new value, go to the new file as they are.
"""

from __future__ import annotations

import json
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from deltasql import telemetry
from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.engine.file_shape import file_shape
from deltasql.engine.footer_stats import footer_statistics, indexed_leaves
from deltasql.engine.memory import give_back_memory
from deltasql.engine.open_file import added_file, new_name
from deltasql.engine.parquet_options import ParquetOptions
from deltasql.engine.revisable import Revisable, open_revisable
from deltasql.engine.revised_columns import RevisedColumns, revised_columns
from deltasql.engine.row_changes import RowChanges
from deltasql.engine.splice import Splicer
from deltasql.model.file_stats import read_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from deltasql.engine.base import WritePlan
    from deltasql.engine.live_files import LiveFiles
    from deltasql.engine.row_changes import GroupChanges
    from deltasql.engine.splice import RowGroup
    from deltasql.engine.statistics import Statistics
    from deltasql.model.actions import AddFile

Item = TypeVar("Item")

_ENDED_AT_ONCE = 4
_GIVEN_AT_ONCE = 2
_AHEAD = 4  # pieces of row groups that are encoded while one is written
_STEPS_AHEAD = 64  # each may hold a file open
_ENDING = 16  # files that are open until the disk has them
_PART_BYTES = 1024 * 1024  # before compression: columns that are read and encoded together
_PIECE_BYTES = 8 * _PART_BYTES  # what is given to a thread at once
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowCapacityError)


def revise_files(
    files: LiveFiles, places: Sequence[int], changes: pa.RecordBatchReader, plan: WritePlan
) -> list[list[AddFile] | None]:
    """Return what each file becomes; None for one that has to be written anew, row by row.

    The changes have FILE, one of `places`, and ROW, and come in this order; also DROPPED, or new
    values of columns, or both.
    """
    give_back_memory()  # what it took to find the rows
    work = _Work(files, plan, changes)
    done: list[list[AddFile] | None] = [None] * len(places)
    # Threads that end files, since each of them waits for the disk.
    with (
        telemetry.span("write", location=plan.location),
        _TwoHands() as hands,
        ThreadPoolExecutor(_ENDED_AT_ONCE) as ends,
    ):
        steps = _ahead(work.steps(places, hands))
        ending: deque[tuple[int, Future[AddFile]]] = deque()
        for number, group in groupby(steps, key=lambda step: step.number):
            try:
                end = work.write(number, group, ends)
            except _TooMuchError:
                continue
            if end is None:
                done[number] = []
                continue
            ending.append((number, end))
            if len(ending) > _ENDING:
                first, ended = ending.popleft()
                done[first] = [ended.result()]
        for number, end in ending:
            done[number] = [end.result()]
    return done


class _TooMuchError(Exception):
    """Arrow has no array for the values of a column in a row group."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A row group of a file, and what becomes of it."""

    number: int
    opened: Revisable
    group: RowGroup
    rows: int
    """How many rows are left."""
    pieces: list[Future[RevisedColumns]]
    """Columns that become others."""


class _Work:
    """What is known of all files of a call."""

    def __init__(self, files: LiveFiles, plan: WritePlan, changes: pa.RecordBatchReader) -> None:
        self._files, self._plan = files.files, plan
        self._shape = file_shape(plan)
        self._options = ParquetOptions.of(plan, self._shape)
        changed = [n for n in changes.schema.names if n not in (FILE, ROW, DROPPED)]
        self._changes = RowChanges(changes, self._shape, changed)
        self._changed = [self._shape.stored_name(name) for name in changed]
        self._stats = [read_stats(text) for text in files.stats()]
        self._partitions = [json.loads(file.partition) for file in self._files]
        self._names = [new_name(plan, self._options, each) for each in self._partitions]
        plan.intend(self._names)

    def steps(self, places: Sequence[int], hands: _TwoHands) -> Iterator[_Step]:
        """Yield the row groups of all files that can be revised; some are being encoded then."""
        for number, (place, file) in enumerate(zip(places, self._files, strict=True)):
            opened = open_revisable(file, self._shape, self._options, self._changed)
            if opened is None:
                self._changes.skip(place)
                continue
            start = 0
            for position, group in enumerate(opened.footer.groups):
                changes = self._changes.take(place, start, start + group.rows)
                start += group.rows
                if changes is None:
                    yield _Step(number, opened, group, group.rows, [])
                    continue
                rows = group.rows - len(changes.dropped)
                every = opened.schema.names if len(changes.dropped) else self._changed
                pieces = [
                    hands.start(
                        partial(
                            revised_columns,
                            opened,
                            position,
                            parts,
                            changes,
                            self._options.arguments,
                        )
                    )
                    for parts in (_pieces(opened, group, every, changes) if rows else ())
                ]
                yield _Step(number, opened, group, rows, pieces)
            self._changes.end(place)

    def write(
        self, number: int, steps: Iterable[_Step], ends: ThreadPoolExecutor
    ) -> Future[AddFile] | None:
        """Put a file together; without rows there is none."""
        splicer: Splicer | None = None
        unordered: set[str] = set()
        with ExitStack() as stack:
            for step in steps:
                if not step.rows:
                    continue
                chunks = list(step.group.chunks)
                for piece in step.pieces:
                    revised = _revised(piece)
                    unordered |= revised.unordered
                    for leaf, chunk in revised.chunks.items():
                        chunks[leaf] = chunk
                if splicer is None:
                    writer = self._plan.storage.writer(
                        self._names[number], durable=self._plan.durable
                    )
                    splicer = Splicer(stack.enter_context(writer), step.opened.footer)
                splicer.add(step.rows, chunks)
            if splicer is None:
                return None
            size, footer = splicer.finish()
            known = self._with_maximum(number, unordered)
            stats = footer_statistics(footer, self._shape, ordered=known)
            return ends.submit(self._end, number, stack.pop_all(), size, stats)

    def _end(self, number: int, opened: ExitStack, size: int, stats: Statistics) -> AddFile:
        opened.close()
        return added_file(self._plan, self._names[number], self._partitions[number], size, stats)

    def _with_maximum(self, number: int, unordered: set[str]) -> set[tuple[str, ...]]:
        """Return the columns whose greatest value is known to be that of the footer."""
        stats = self._stats[number]
        found = set()
        for path, _ in indexed_leaves(self._shape):
            maximum, rows = _at(stats.get("maxValues"), path), stats.get("numRecords")
            # Some writers leave NaN out of the log, others put it there as text.
            has_maximum = isinstance(maximum, int | float) and math.isfinite(maximum)
            is_empty = rows is not None and _at(stats.get("nullCount"), path) == rows
            if (has_maximum or is_empty) and path[0] not in unordered:
                found.add(path)
        return found


def _at(values: Any, path: tuple[str, ...]) -> Any:
    here = values
    for name in path:
        here = here.get(name) if isinstance(here, dict) else None
    return here


class _TwoHands:
    """This thread and another: work goes to the other one unless it has enough.

    A third would hold more memory than it saves time.
    """

    def __init__(self) -> None:
        self._other = ThreadPoolExecutor(1)
        self._given: list[Future[RevisedColumns]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._other.shutdown(cancel_futures=True)

    def start(self, work: Callable[[], RevisedColumns]) -> Future[RevisedColumns]:
        """Do work, or let it be done."""
        self._given = [each for each in self._given if not each.done()]
        if len(self._given) < _GIVEN_AT_ONCE:
            self._given.append(self._other.submit(work))
            return self._given[-1]
        done: Future[RevisedColumns] = Future()
        try:
            done.set_result(work())
        except _ARROW_ERRORS as error:  # told by whoever asks for the result
            done.set_exception(error)
        return done


def _revised(piece: Future[RevisedColumns]) -> RevisedColumns:
    try:
        return piece.result()
    except _ARROW_ERRORS as error:
        raise _TooMuchError from error


def _ahead(steps: Iterator[_Step]) -> Iterator[_Step]:
    """Yield steps in their order, while those after them are being done."""
    waiting: deque[_Step] = deque()
    running = 0
    for step in steps:
        waiting.append(step)
        running += len(step.pieces)
        while running > _AHEAD or len(waiting) > _STEPS_AHEAD:
            first = waiting.popleft()
            running -= len(first.pieces)
            yield first
    yield from waiting


def _pieces(
    opened: Revisable, group: RowGroup, names: Sequence[str], changes: GroupChanges
) -> Iterator[list[list[str]]]:
    """Part columns so that several can be encoded at the same time, and few are in memory."""
    if changes.values:  # which takes twice the memory
        yield from ([[name]] for name in names)
        return
    sizes = {name: sum(group.chunks[n].size for n in opened.leaves[name]) for name in names}
    parts = list(_gathered(names, [sizes[name] for name in names], _PART_BYTES))
    yield from _gathered(parts, [sum(sizes[n] for n in part) for part in parts], _PIECE_BYTES)


def _gathered(items: Sequence[Item], sizes: Sequence[int], enough: int) -> Iterator[list[Item]]:
    """Put what comes one after the other together until it is enough."""
    held: list[Item] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        held.append(item)
        total += size
        if total >= enough:
            yield held
            held, total = [], 0
    if held:
        yield held
