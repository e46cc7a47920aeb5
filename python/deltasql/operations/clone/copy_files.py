"""Copy the data files of a table to a new one, several at the same time and each only once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

from deltasql.model.actions import AddCdcFile, AddFile
from deltasql.model.deletion_vector import vector_file
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    import pyarrow as pa

    from deltasql.config import StorageSettings
    from deltasql.model.actions import Action, DeletionVector
    from deltasql.operations.clone.paths import CopiedData
    from deltasql.storage import Storage

_THREADS = 8
_BATCH = 256


class Copy(NamedTuple):
    """A file to copy: its path in the log, its new name, its size and its data file's path."""

    path: str
    name: str
    size: int
    owner: str


@dataclass(slots=True)
class DataCopier:
    """Copies the files of a log to their new names in the new table."""

    relocation: CopiedData
    target: Storage
    settings: StorageSettings
    skips_present: bool = False
    """Whether to skip files that an interrupted run has already copied."""
    before_batch: Callable[[list[str]], None] = lambda names: None
    """Called with the new names of files before they are copied."""
    on_batch: Callable[[], None] = lambda: None
    files: int = 0
    bytes: int = 0
    missing: set[str] = field(default_factory=set)
    """The paths of data files that are missing, or whose deletion vector is."""
    _folders: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_THREADS, thread_name_prefix="deltasql-copy")
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
        """Copy the data files in a table of files, with their deletion vectors."""
        columns = (files[name].to_pylist() for name in ("path", "size", "deletion_vector"))
        self._copy(
            copy
            for path, size, vector in zip(*columns, strict=True)
            for copy in self._of_file(path, size, load_dv(vector))
        )

    def copy_named(self, actions: Iterable[Action]) -> None:
        """Copy the files that actions add: data files, deletion vectors and change data."""
        self._copy(copy for action in actions for copy in self._of_action(action))

    def flush_folders(self) -> None:
        """Flush the folders of all copied files, so that the files survive a power loss."""
        for folder in sorted(self._folders):
            self.target.flush_folder(folder)
        self._folders.clear()

    def _of_action(self, action: Action) -> Iterator[Copy]:
        if isinstance(action, AddFile):
            yield from self._of_file(action.path, action.size, action.deletion_vector)
        elif isinstance(action, AddCdcFile):
            yield Copy(action.path, self.relocation.name(action.path), action.size, action.path)

    def _of_file(self, path: str, size: int, vector: DeletionVector | None) -> Iterator[Copy]:
        yield Copy(path, self.relocation.name(path), size, path)
        if vector is None:
            return
        file, name = vector_file(vector), self.relocation.vector_name(vector)
        if file is not None and name is not None:
            yield Copy(file, name, 0, path)

    def _copy(self, copies: Iterator[Copy]) -> None:
        while batch := [*islice(copies, _BATCH)]:
            new = [copy for copy in batch if not self._is_known(copy)]
            self.before_batch([copy.name for copy in new])
            for copy, is_copied in zip(new, self._pool.map(self._copy_one, new), strict=True):
                if is_copied:
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
        source, name = self.relocation.source(copy.path, self.settings)
        try:
            if self.skips_present and self._is_complete(source, name, copy.name):
                return True
            self.target.copy_from(source, name, to=copy.name, flush_folder=False)
        except FileNotFoundError:
            return False
        return True

    def _is_complete(self, source: Storage, name: str, to: str) -> bool:
        """Return whether a file was copied completely; release 0.1.0 could leave a partial copy."""
        return self.target.exists(to) and self.target.size(to) == source.size(name)
