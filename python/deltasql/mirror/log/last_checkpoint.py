"""`_last_checkpoint`: the hint that saves a reader from listing the whole log."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltasql.model.json_text import load_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.storage import Storage

LAST_CHECKPOINT = "_delta_log/_last_checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that was written: its version, actions, bytes and live files."""

    version: int
    size: int
    size_in_bytes: int
    num_of_add_files: int

    def to_json(self) -> bytes:
        """Return the content of `_last_checkpoint`."""
        body = {
            "version": self.version,
            "size": self.size,
            "sizeInBytes": self.size_in_bytes,
            "numOfAddFiles": self.num_of_add_files,
        }
        return json.dumps(body | {"checksum": json_checksum(body)}, separators=(",", ":")).encode()


def last_checkpoint_version(storage: Storage) -> int | None:
    """Return the version the hint names; None when there is none, or none that can be read."""
    try:
        body = load_json(storage.read(LAST_CHECKPOINT))
    except (FileNotFoundError, ValueError):
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return version if type(version) is int and version >= 0 else None


def move_last_checkpoint(storage: Storage, info: CheckpointInfo) -> None:
    """Let the hint name a checkpoint, unless it names a later one."""
    known = last_checkpoint_version(storage)
    if known is None or known <= info.version or not has_checkpoint(storage, known):
        # A hint that is lost with the power leaves the one before it, which is right, too.
        storage.put(LAST_CHECKPOINT, info.to_json(), flush_folder=False)


def has_checkpoint(storage: Storage, version: int) -> bool:
    """Tell whether a log has a checkpoint of a version, in one file or in several."""
    start = f"_delta_log/{version:020d}.checkpoint."
    found = next(iter(storage.list("_delta_log/", start_after=start)), None)
    return found is not None and found.name.startswith(start)


def json_checksum(body: dict[str, Any]) -> str:
    """Return Delta's checksum of a JSON object: the MD5 of its members in a canonical form.

    >>> json_checksum({"k0": "'v 0'", "checksum": "ignored", "k1": {"k2": 2, "k3": ["v3", [1, 2],
    ...     {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}})
    '6a92d155a59bf2eecbd4b4ec7fd1f875'
    """
    members = {key: value for key, value in body.items() if key != "checksum"}
    text = ",".join(sorted(_canonical(members, ())))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _canonical(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _canonical(each, (*path, _quoted(key)))
    elif isinstance(value, list):
        for position, each in enumerate(value):
            yield from _canonical(each, (*path, str(position)))
    else:
        leaf = _quoted(value) if isinstance(value, str) else json.dumps(value)
        yield "+".join(path) + "=" + leaf


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="")}"'
