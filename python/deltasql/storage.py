"""Bytes at a table's location: written once, read whole, listed by folder.

A location is an absolute path or a `file://` URL. Writes are put-if-absent and appear whole or
not at all, since another process may be reading the folder.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltasql.exceptions import TxnLogConfigError


class Storage:
    """The files under one location."""

    def __init__(self, location: str) -> None:
        self.root = local_path(location)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a file with this content; False when the name is taken, which changes nothing."""
        target = self.root / name
        staging = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
        try:
            staging.write_bytes(data)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            staging.write_bytes(data)
        try:
            # A hard link fails when the name exists and never shows a half-written file.
            os.link(staging, target)
        except FileExistsError:
            return False
        finally:
            staging.unlink()
        return True

    def read(self, name: str) -> bytes:
        """Return a file's content; FileNotFoundError when it is not there."""
        return (self.root / name).read_bytes()

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""
        (self.root / name).unlink(missing_ok=True)


def local_path(location: str) -> Path:
    """Return the local folder a location names.

    >>> local_path("file:///data/sales%20eu/")
    PosixPath('/data/sales eu')
    """
    if location.startswith("file://"):
        return Path(unquote(urlsplit(location).path))
    if "://" in location:
        scheme = location.partition("://")[0]
        raise TxnLogConfigError(
            f"locations of the kind {scheme}:// are not supported yet",
            help="Give an absolute path or a file:// URL.",
        )
    return Path(location).absolute()
