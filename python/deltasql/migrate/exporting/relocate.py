"""Rewrite the actions and checkpoints of a log that is exported to another location."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.model.actions import AddCdcFile, AddFile, Protocol, RemoveFile
from deltasql.operations.alter.fence import unfenced
from deltasql.store.records import dump_dv, load_dv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.model.actions import Action
    from deltasql.operations.clone.paths import Relocation
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def relocated(action: Action, relocation: Relocation) -> Action:
    """Return an action with the paths of the exported log, or `action` itself if none changes.

    The protocol loses the fence, because other engines may write to the exported table.
    """
    match action:
        case Protocol():
            return unfenced(action)
        case AddFile() | RemoveFile():
            path, vector = relocation.path(action.path), action.deletion_vector
            moved = None if vector is None else relocation.vector(vector)
            if path == action.path and moved == vector:
                return action
            return replace(action, path=path, deletion_vector=moved)
        case AddCdcFile():
            path = relocation.path(action.path)
            return action if path == action.path else replace(action, path=path)
        case _:
            return action


class RelocatedSource(CheckpointSource):
    """The source of a checkpoint of an exported log: the state of a version with new file paths."""

    def __init__(self, store: Store, table: TableRow, version: int, relocation: Relocation) -> None:
        super().__init__(store, table, version)
        self.protocol = unfenced(self.protocol)
        self._relocation = relocation

    def live_files(self) -> Iterator[pa.Table]:
        """Yield the live files in ranges of file ids."""
        return map(self._relocated, super().live_files())

    def tombstones(self) -> Iterator[pa.Table]:
        """Yield the tombstones that vacuum must still respect."""
        return map(self._relocated, super().tombstones())

    def _relocated(self, files: pa.Table) -> pa.Table:
        paths = [self._relocation.path(path) for path in files["path"].to_pylist()]
        vectors = [self._vector(text) for text in files["deletion_vector"].to_pylist()]
        for name, values in (("path", paths), ("deletion_vector", vectors)):
            index = files.schema.get_field_index(name)
            files = files.set_column(index, name, pa.array(values, pa.string()))
        return files

    def _vector(self, text: str | None) -> str | None:
        vector = load_dv(text)
        return text if vector is None else dump_dv(self._relocation.vector(vector))
