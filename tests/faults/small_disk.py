"""A file system of the test's own: it can be full, and it can be read-only."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK = 4096


class SmallDisk:
    """A disk in memory, mounted in the test's folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self, *, leave: int = 0) -> None:
        """Take all space but so many bytes."""
        self.free()
        with self._ballast.open("wb", buffering=0) as file:
            size = 1 << 20
            while size >= _BLOCK:
                try:
                    # A write may do a part of its work and say so.
                    if file.write(b"x" * size) < size:
                        size //= 2
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
            file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)

    def read_only(self) -> None:
        """Refuse every write from now on, as a disk does after an error."""
        self._mount("-o", "remount,ro")

    def writable(self) -> None:
        """Take writes again."""
        self._mount("-o", "remount,rw")

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments, str(self.place)], check=True, capture_output=True)


@contextmanager
def small_disk(place: Path, size: str = "64m") -> Iterator[SmallDisk]:
    """Mount a disk for the length of a block."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "deltasql-test", str(place)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"to mount a disk is not allowed here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(place)
    finally:
        # Lazily: a database may still have files open, which end with their process.
        subprocess.run(["umount", "-l", str(place)], check=True)
        assert not os.path.ismount(place)
