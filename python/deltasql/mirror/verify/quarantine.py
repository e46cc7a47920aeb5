"""Files of a log that give way are kept, in a folder that no reader looks into."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltasql.mirror.log.listing import ASIDE_FOLDER, LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.storage import Storage


class Aside:
    """One folder for the files of one repair."""

    def __init__(self, storage: Storage) -> None:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        self._storage, self._folder = storage, f"{ASIDE_FOLDER}{moment}/"
        self.names: list[str] = []

    def copy(self, name: str) -> None:
        """Keep what a file holds, before other bytes take its place."""
        try:
            data = self._storage.read(name)
        except FileNotFoundError:
            return
        self._storage.put(self._place(name), data)

    def move(self, names: Iterable[str]) -> None:
        """Take files out of the log, the latest first: a reader never sees a hole."""
        moved = sorted(names, reverse=True)
        for name in moved:
            self._storage.rename(name, self._place(name), flush_folder=False)
        if moved:
            self._storage.flush_folder(self._folder)
            self._storage.flush_folder(LOG_FOLDER)

    def _place(self, name: str) -> str:
        # deltalake before 1.0 lists subfolders, too, and goes by the names of files.
        kept = f"{self._folder}{name.removeprefix(LOG_FOLDER)}.aside"
        self.names.append(kept)
        return kept
