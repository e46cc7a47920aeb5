"""A disk as a power loss may leave it, built from recorded file system calls.

POSIX guarantees little: the content of a file is safe after an fsync of the file, a name after an
fsync of its folder. Everything that was not flushed may exist or not, independently.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")


class Call(NamedTuple):
    """One recorded call; `path` is the new path of a call with two."""

    name: str
    inode: int
    size: int
    path: str
    other: str


def compile_recorder(folder: Path) -> Path:
    """Compile the recorder library; raise if there is no C compiler."""
    library = folder / "recorder.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def read_calls(log: Path) -> list[Call]:
    """Read the recorded calls."""
    return [
        Call(name, int(inode), int(size), path, other)
        for name, inode, size, path, other in (
            line.split("\t") for line in log.read_text().splitlines()
        )
    ]


@dataclass(slots=True)
class Disk:
    """The files below a folder, and what would remain of them after a power loss.

    A folder has the number 0; everything else is identified by its inode.
    """

    root: str
    vault: Path
    names: dict[str, int] = field(default_factory=dict)
    """Every name as a process sees it now."""
    safe_names: dict[str, int] = field(default_factory=dict)
    """Every name as of the last flush of its folder."""
    unflushed: set[int] = field(default_factory=set)
    """Files whose content is not completely on the disk."""

    def apply(self, call: Call) -> None:
        match call.name:
            case "write":
                self.unflushed.add(call.inode)
            case "truncate" | "create":
                if self.names.get(call.path) != call.inode or call.name == "truncate":
                    self.unflushed.add(call.inode)
                self.names[call.path] = call.inode
            case "link":
                self.names[call.path] = call.inode
            case "rename":
                self.names.pop(call.other, None)
                inside = f"{call.other}/"
                for path in [each for each in self.names if each.startswith(inside)]:
                    self.names[call.path + path.removeprefix(call.other)] = self.names.pop(path)
                self.names[call.path] = call.inode
            case "mkdir":
                self.names[call.path] = 0
            case "unlink":
                self.names.pop(call.path, None)
            case "flush" if call.size >= 0:
                self.unflushed.discard(call.inode)
            case "flush":
                self._flush_folder(call.path)

    def is_safe(self, path: str) -> bool:
        """Return whether a file and the folders above it survive a power loss."""
        return (
            path in self.safe_names
            and self.safe_names[path] not in self.unflushed
            and all(above in self.safe_names for above in self._above(path))
        )

    def lost(self) -> dict[str, int]:
        """Return the files of the state in which every name that may be lost is lost."""
        return {
            path: inode
            for path, inode in self.safe_names.items()
            if inode and all(above in self.safe_names for above in self._above(path))
        }

    def kept(self) -> dict[str, int]:
        """Return the files of the state in which every name that may exist exists."""
        return {path: inode for path, inode in self.names.items() if inode}

    def build(self, files: dict[str, int], folder: Path) -> None:
        """Write a state to a folder; files whose content was not flushed are empty."""
        for path, inode in files.items():
            target = folder / os.path.relpath(path, self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if inode in self.unflushed:
                target.write_bytes(b"")
            else:
                os.link(self.vault / str(inode), target)

    def _flush_folder(self, folder: str) -> None:
        def is_in(path: str) -> bool:
            return os.path.dirname(path) == folder

        for path in [path for path in self.safe_names if is_in(path)]:
            del self.safe_names[path]
        self.safe_names.update({path: i for path, i in self.names.items() if is_in(path)})

    def _above(self, path: str) -> Iterator[str]:
        above = os.path.dirname(path)
        while len(above) > len(self.root):
            yield above
            above = os.path.dirname(above)


def is_temporary(path: str) -> bool:
    """Return whether readers ignore a name: a file being written, or a lock."""
    return os.path.basename(path).startswith(".")
