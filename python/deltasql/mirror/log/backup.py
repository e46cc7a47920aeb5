"""Back up log files that a repair replaces or removes, in a folder that readers ignore."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltasql.mirror.log.listing import LAST_CHECKPOINT, LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage

_BACKUP_FOLDER = "_delta_log/_aside/"


class LogBackup:
    """The folder with the backups of one repair."""

    def __init__(self, storage: Storage) -> None:
        timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        self._storage, self._folder = storage, f"{_BACKUP_FOLDER}{timestamp}/"
        self.names: list[str] = []

    def copy(self, name: str) -> None:
        """Copy a file to the backup folder, if it exists."""
        try:
            data = self._storage.read(name)
        except FileNotFoundError:
            return
        self._storage.put(self._backup_name(name), data)

    def move(self, names: Iterable[str]) -> None:
        """Move files to the backup folder, the latest first, so that readers never see a gap."""
        moved = sorted(names, reverse=True)
        for name in moved:
            self._storage.rename(name, self._backup_name(name), flush_folder=False)
        if moved:
            self._storage.flush_folder(self._folder)
            self._storage.flush_folder(LOG_FOLDER)

    def move_versions(self, listing: LogListing, first: int) -> None:
        """Move all log files from a version on."""
        checkpoints = [
            file.name
            for each in listing.checkpoints
            if each.version >= first
            for file in each.files
        ]
        if checkpoints:
            self.copy(LAST_CHECKPOINT)
            self._storage.delete(LAST_CHECKPOINT)
        # Move the commits last, because no other file may describe a version whose commit is
        # missing.
        self.move(checkpoints)
        self.move(each.file.name for each in listing.compactions if each.last >= first)
        self.move(file.name for each, file in listing.checksums.items() if each >= first)
        self.move(file.name for each, file in listing.commits.items() if each >= first)

    def _backup_name(self, name: str) -> str:
        # deltalake before 1.0 also lists subfolders, so a backup must not have the suffix of a log
        # file.
        backup = f"{self._folder}{name.removeprefix(LOG_FOLDER)}.aside"
        self.names.append(backup)
        return backup
