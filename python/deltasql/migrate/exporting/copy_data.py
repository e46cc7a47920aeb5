"""Copy the data of a table that is exported: many files at once, each of them once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

from deltasql.model.actions import AddCdcFile, AddFile
from deltasql.model.deletion_vector import vector_file
from deltasql.storage.base import stream_from
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    import pyarrow as pa

    from deltasql.config import StorageSettings
    from deltasql.migrate.exporting.relocate import ComeAlong
    from deltasql.model.actions import Action, DeletionVector
    from deltasql.storage import Storage

_AT_ONCE = 8
_BATCH = 256


class Copy(NamedTuple):
    """A file to copy: how the log names it, its new name, its bytes, and the file it is for."""

    path: str
    name: str
    size: int
    owner: str


@dataclass(slots=True)
class DataCopier:
    """Copies the files that a log names to the names that they get."""

    move: ComeAlong
    target: Storage
    settings: StorageSettings
    skips_present: bool = False
    """Whether what is there already was put there by a run that was cut short."""
    on_batch: Callable[[], None] = lambda: None
    files: int = 0
    bytes: int = 0
    missing: set[str] = field(default_factory=set)
    """Files, by their paths in the log, that are gone or whose deletion vectors are."""
    _folders: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deltasql-export")
    )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def copy_listed(self, files: pa.Table) -> None:
        """Copy listed files and their deletion vectors."""
        columns = (files[name].to_pylist() for name in ("path", "size", "deletion_vector"))
        self._copy(
            copy
            for path, size, vector in zip(*columns, strict=True)
            for copy in self._of_file(path, size, load_dv(vector))
        )

    def copy_named(self, actions: Iterable[Action]) -> None:
        """Copy what the actions of a commit bring: data, deletion vectors, change data."""
        self._copy(copy for action in actions for copy in self._of_action(action))

    def flush_folders(self) -> None:
        """Let the names of everything that was copied survive a power loss."""
        for folder in sorted(self._folders):
            self.target.flush_folder(folder)
        self._folders.clear()

    def _of_action(self, action: Action) -> Iterator[Copy]:
        if isinstance(action, AddFile):
            yield from self._of_file(action.path, action.size, action.deletion_vector)
        elif isinstance(action, AddCdcFile):
            yield Copy(action.path, self.move.name(action.path), action.size, action.path)

    def _of_file(self, path: str, size: int, vector: DeletionVector | None) -> Iterator[Copy]:
        yield Copy(path, self.move.name(path), size, path)
        if vector is None:
            return
        file, name = vector_file(vector), self.move.vector_name(vector)
        if file is not None and name is not None:
            yield Copy(file, name, 0, path)

    def _copy(self, wanted: Iterator[Copy]) -> None:
        while batch := [*islice(wanted, _BATCH)]:
            new = [copy for copy in batch if not self._is_known(copy)]
            for copy, is_there in zip(new, self._pool.map(self._copy_one, new), strict=True):
                if is_there:
                    self._folders.add(copy.name.rpartition("/")[0])
                    self.files += 1
                    self.bytes += copy.size
                else:
                    self.missing.add(copy.owner)
            self.on_batch()

    def _is_known(self, copy: Copy) -> bool:
        if copy.name in self._seen:
            return True
        self._seen.add(copy.name)
        return False

    def _copy_one(self, copy: Copy) -> bool:
        source, name = self.move.source(copy.path, self.settings)
        try:
            if self.skips_present and self._is_whole(source, name, copy.name):
                return True
            if name == copy.name:
                self.target.copy_from(source, name, flush_folder=False)
            else:
                stream_from(source, name, self.target, copy.name, flush_folder=False)
        except FileNotFoundError:
            return False
        return True

    def _is_whole(self, source: Storage, name: str, to: str) -> bool:
        """Tell whether a file was copied in full: release 0.1.0 could leave a part of it."""
        return self.target.exists(to) and self.target.size(to) == source.size(name)
