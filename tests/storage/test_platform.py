"""deltasql does not need what only Linux or only Unix has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Runs in a process of its own, before any module of deltasql is imported.
WITHOUT_UNIX = """
import os, sys

for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None  # its import fails
for name in (
    "O_CLOEXEC", "O_NONBLOCK", "O_TMPFILE", "fork", "getuid", "pread", "pwrite",
    "register_at_fork", "statvfs",
):
    delattr(os, name)
"""
USE = """
import deltasql
import pyarrow as pa

uri = sys.argv[1]
for n in range(2):
    with deltasql.begin(uri) as tx:
        tx.write("t", pa.table({"id": [n]}))
rows = deltasql.DeltaTable(uri + "?table=t").to_pyarrow_table()["id"].to_pylist()
print(tx.versions, sorted(rows))
"""


def test_package_is_imported_and_commits_without_unix_modules(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/catalog.db"
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX + USE, uri], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "{'t': 1} [0, 1]\n"


def test_only_the_platform_module_uses_unix_functions() -> None:
    """On other systems, `deltasql.storage.platform` replaces or leaves out these functions."""
    package = Path(__file__).parents[2] / "python" / "deltasql"
    names = ("fcntl", "os.register_at_fork", "os.pread", "os.pwrite", "os.uname", "os.O_CLOEXEC")
    found = [
        f"{path.relative_to(package)}: {name}"
        for path in sorted(package.rglob("*.py"))
        for name in names
        if name in path.read_text("utf-8") and path.name != "platform.py"
    ]
    assert not found, "use deltasql.storage.platform instead:\n" + "\n".join(found)
