"""Read, check and write `_last_checkpoint`, so that readers need not list the log.

The docstrings call this file the hint.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltasql.exceptions import LogParseError
from deltasql.mirror.log.listing import LAST_CHECKPOINT, LOG_FOLDER, read_json
from deltasql.model.json_text import load_json
from deltasql.model.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage


@dataclass(frozen=True, slots=True)
class CheckpointInfo(Report):
    """A written checkpoint: its version, number of actions, bytes and live files."""

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


def checkpoint_file(version: int) -> str:
    """Return the name of a classic checkpoint.

    >>> checkpoint_file(10)
    '_delta_log/00000000000000000010.checkpoint.parquet'
    """
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def last_checkpoint_version(storage: Storage) -> int | None:
    """Return the version in the hint; None if the hint is missing or unreadable."""
    try:
        body = load_json(storage.read(LAST_CHECKPOINT))
    except (FileNotFoundError, ValueError):
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return version if type(version) is int and version >= 0 else None


def move_last_checkpoint(storage: Storage, info: CheckpointInfo) -> None:
    """Point the hint to a checkpoint, unless it names a later checkpoint that exists."""
    known = last_checkpoint_version(storage)
    if known is None or known <= info.version or not has_checkpoint(storage, known):
        # A power loss may restore the previous hint, which is still valid.
        storage.put(LAST_CHECKPOINT, info.to_json(), flush_folder=False)


def has_checkpoint(storage: Storage, version: int) -> bool:
    """Return whether the log has a checkpoint of a version, in one file or in several."""
    start = f"_delta_log/{version:020d}.checkpoint."
    found = next(iter(storage.list(LOG_FOLDER, start_after=start)), None)
    return found is not None and found.name.startswith(start)


def read_last_checkpoint(storage: Storage) -> dict[str, Any] | None:
    """Return the content of the hint; None if it is missing."""
    try:
        data = storage.read(LAST_CHECKPOINT)
    except FileNotFoundError:
        return None
    return read_json(LAST_CHECKPOINT, data, needs="version")


def hint_fault(storage: Storage, listing: LogListing) -> str | None:
    """Return what is wrong with the hint; None if it names a checkpoint that exists."""
    try:
        hint = read_last_checkpoint(storage)
    except LogParseError as error:
        return error.message
    if hint is None:
        return "the file is missing" if listing.checkpoints else None
    for name in ("version", "size", "parts", "sizeInBytes", "numOfAddFiles"):
        value = hint.get(name)
        if value is not None and (type(value) is not int or value < 0):
            return f"{name} is {str(value)[:40]}"
    version, parts = hint["version"], hint.get("parts")
    named = [each for each in listing.checkpoints if each.version == version]
    if not named:
        return f"there is no checkpoint of version {version}"
    counts = {len(each.files) if each.kind == "multipart" else None for each in named}
    if parts not in counts:
        return f"the checkpoint of version {version} does not have {parts or 1} parts"
    return None


def json_checksum(body: dict[str, Any]) -> str:
    """Return Delta's checksum of a JSON object: the MD5 of its canonical form.

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
