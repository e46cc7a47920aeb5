"""A separate file system that can be full or read-only."""

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
    """A file system in memory, mounted in the test's folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self, *, leave: int = 0) -> None:
        """Use all space except the given number of bytes."""
        self.free()
        with self._ballast.open("wb", buffering=0) as file:
            size = 1 << 20
            while size >= _BLOCK:
                try:
                    # A write may be partial.
                    if file.write(b"x" * size) < size:
                        size //= 2
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
            file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        """Free the space."""
        self._ballast.unlink(missing_ok=True)

    def read_only(self) -> None:
        """Make the file system read-only, as after a disk error."""
        self._mount("-o", "remount,ro")

    def writable(self) -> None:
        """Make the file system writable again."""
        self._mount("-o", "remount,rw")

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments, str(self.place)], check=True, capture_output=True)


@contextmanager
def small_disk(place: Path, size: str = "64m") -> Iterator[SmallDisk]:
    """Mount a file system within a block."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "deltasql-test", str(place)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(place)
    finally:
        # Lazily: a database may still have open files, which are closed with its process.
        subprocess.run(["umount", "-l", str(place)], check=True)
        assert not os.path.ismount(place)
