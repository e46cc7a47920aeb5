"""The service file: where a service listens, and the token that its clients must send.

Only the user who started the service can read the file.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def default_service_file(catalog: str) -> Path:
    """Return the file in which a client looks for the service of a catalog.

    `catalog` is the text of the option: a name, or a URI in which variables are not replaced.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    shared = os.environ.get("TMPDIR") or "/tmp"
    folder = Path(runtime, "deltasql") if runtime else Path(shared, f"deltasql-{getpass.getuser()}")
    name = hashlib.sha256(catalog.encode()).hexdigest()[:16]
    return folder / f"{name}.json"


def write_service_file(path: Path, content: Mapping[str, object]) -> None:
    """Write a service file that only this user can read; it appears complete or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.parent.stat().st_uid
    if owner != os.getuid():
        raise TxnLogConfigError(
            f"the folder {path.parent} belongs to another user",
            key="service",
            help="Set XDG_RUNTIME_DIR to a folder of your own, or give another service file.",
        )
    # mkstemp creates the file with the mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(temporary, path)
