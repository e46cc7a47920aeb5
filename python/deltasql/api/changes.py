"""Read the changes of any table: of a range of versions, or with a cursor that can resume."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.base import COMMIT_VERSION
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TableChangedError, VersionNotFoundError
from deltasql.model.json_text import load_json
from deltasql.operations.changes.feed import ChangeFeed
from deltasql.operations.changes.log import VersionChanges, changed_files, physical_partitioning
from deltasql.snapshot.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.engine.base import Engine
    from deltasql.operations.changes.log import ChangedFile
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import TableRow

# A snapshot is read in parts of this size; a cursor can resume after each part.
_PART_BYTES = 256 * 1024 * 1024


def changes(
    catalog: BaseCatalog,
    table: TableRow,
    from_version: int,
    to_version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
) -> pa.RecordBatchReader:
    """Stream the changes from `from_version` to `to_version`, both included, in version order.

    The rows have the columns of the table at the last version, then `_change_type`,
    `_commit_version` and `_commit_timestamp`.
    """
    snapshot = open_snapshot(catalog.store, table, catalog.cache, version=to_version)
    feed = ChangeFeed(snapshot, catalog.config, columns=columns, predicate=predicate)
    _check_from(feed, from_version, snapshot.version)

    def batches() -> Iterator[pa.RecordBatch]:
        with open_engine(catalog.config) as engine:
            yield from feed.between(engine, from_version, snapshot.version)

    return pa.RecordBatchReader.from_batches(feed.schema, batches())


def _check_from(feed: ChangeFeed, from_version: int, last: int) -> None:
    feed.log.require_start(from_version)
    if from_version > last:
        raise VersionNotFoundError(
            f"Invalid version. Start version {from_version} is greater than end version {last}",
            table=feed.log.table.full_name,
            version=from_version,
            help=f"Start at version {last}, the latest, or at an earlier version.",
        )


@dataclass(frozen=True, slots=True)
class Position:
    """Where a cursor resumes: after `version`, or inside the snapshot at `version`."""

    table: str
    """The UUID of the table, which distinguishes it from a later table of the same name."""
    version: int
    snapshot_files: int | None = None
    """How many files of the snapshot were returned; None if the whole snapshot was returned."""

    def dump(self) -> str:
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(known, separators=(",", ":"))


class ChangeCursor:
    """Yields the rows of a table, then the changes of later versions, and can resume.

    The iteration ends after the latest version; iterate again to get the changes of newer versions.
    `position` belongs to the batch that was yielded last. Save both together: a cursor that starts
    from the saved position continues after that batch. The position advances when a version, or a
    part of the snapshot, is complete. After a crash, batches of an incomplete version or part are
    yielded again; no batch is skipped.
    """

    def __init__(
        self,
        catalog: BaseCatalog,
        table: TableRow,
        start: str | int = "snapshot",
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> None:
        """Start with "snapshot", with a version number, or after a saved `position`."""
        self._catalog, self._table = catalog, table
        self._columns, self._predicate = columns, predicate
        self._position = self._start(start)

    def __repr__(self) -> str:
        return f"ChangeCursor({self._table.full_name!r}, position={self.position!r})"

    @property
    def position(self) -> str:
        """The position after the batch that was yielded last, as JSON."""
        return self._position.dump()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with open_engine(self._catalog.config) as engine:
            if self._position.snapshot_files is not None:
                yield from self._snapshot(engine)
            while (head := self._open()).version > self._position.version:
                yield from self._tail(engine, head)

    def _snapshot(self, engine: Engine) -> Iterator[pa.RecordBatch]:
        snapshot = self._open(self._position.version)
        feed = self._feed(snapshot)
        is_old = self._open().version > snapshot.version
        files = changed_files(snapshot.scan().arrow, may_be_gone=is_old)
        done = self._position.snapshot_files or 0
        while done < len(files):
            part = _part(files[done:])
            inserted = VersionChanges(
                snapshot.version,
                snapshot.committed_at_ms,
                partitioned_by=physical_partitioning(snapshot.metadata),
                added=part,
            )
            feed.log.require([inserted], snapshot.version)
            done += len(part)
            for batch, following in _with_next(feed.read(engine, [inserted])):
                if following is None:
                    self._reach(snapshot.version, done if done < len(files) else None)
                yield self._selected(batch)
        self._reach(snapshot.version)

    def _tail(self, engine: Engine, head: Snapshot) -> Iterator[pa.RecordBatch]:
        feed = self._feed(head)
        first = self._position.version + 1
        _check_from(feed, first, head.version)
        for batch, following in _with_next(feed.between(engine, first, head.version)):
            # Versions are read in order, so all versions before that of the next row are complete.
            if following is None:
                self._reach(head.version)
            else:
                self._reach(following[COMMIT_VERSION][0].as_py() - 1)
            yield self._selected(batch)
        self._reach(head.version)

    def _feed(self, snapshot: Snapshot) -> ChangeFeed:
        columns = None if self._columns is None else [*self._columns, COMMIT_VERSION]
        return ChangeFeed(
            snapshot, self._catalog.config, columns=columns, predicate=self._predicate
        )

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_columns if self._columns is None else len(self._columns)
        return batch.select(range(count))

    def _reach(self, version: int, snapshot_files: int | None = None) -> None:
        self._position = replace(self._position, version=version, snapshot_files=snapshot_files)

    def _open(self, version: int | None = None) -> Snapshot:
        catalog = self._catalog
        return open_snapshot(catalog.store, self._table, catalog.cache, version=version)

    def _start(self, start: str | int) -> Position:
        table = self._table.table_uuid
        if start == "snapshot":
            return Position(table, self._open().version, 0)
        if isinstance(start, int):
            return Position(table, start - 1)
        position = _load(start)
        if position.table != table:
            raise TableChangedError(
                f"the position belongs to an earlier table with the name {self._table.full_name}",
                table=self._table.full_name,
                help="Another table has this name now. Start again with start='snapshot'.",
            )
        return position


def _load(text: str) -> Position:
    try:
        return Position(**load_json(text))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"start must be 'snapshot', a version or the position of a cursor; got {text!r}"
        ) from error


def _part(files: Sequence[ChangedFile]) -> list[ChangedFile]:
    """Return the files to read next: at least one, and up to `_PART_BYTES` in total."""
    ends = accumulate(file.size for file in files)
    return [
        file
        for number, (file, end) in enumerate(zip(files, ends, strict=True))
        if number == 0 or end <= _PART_BYTES
    ]


def _with_next(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    held: pa.RecordBatch | None = None
    for batch in batches:
        if held is not None:
            yield held, batch
        held = batch
    if held is not None:
        yield held, None
