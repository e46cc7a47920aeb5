"""SQLite libraries of chosen releases, compiled from the source in a crate."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.matrix.cell import ROOT, Skipped

# The crate libsqlite3-sys contains the source of one release.
CRATES = {"3.36.0": "0.23.1", "3.37.0": "0.23.2", "3.54.1": "0.39.1"}
TOO_OLD, OLDEST, NEWEST = CRATES
_MANIFEST = """\
[package]
name = "source"
version = "0.1.0"
edition = "2021"

[lib]
path = "empty.rs"

[dependencies]
libsqlite3-sys = "={version}"

[workspace]
"""


def library_folder(release: str) -> Path:
    """Return a folder with `libsqlite3.so.0` of a release; compile it on the first call.

    With the folder in LD_LIBRARY_PATH, Python's `sqlite3` uses this library.
    """
    folder = ROOT / "build" / "sqlite" / release
    library = folder / "libsqlite3.so.0"
    if library.exists():
        return folder
    for program in ("cargo", "cc"):
        if shutil.which(program) is None:
            raise Skipped(f"{program} is missing, which builds SQLite {release}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(_MANIFEST.format(version=CRATES[release]), "utf-8")
    (folder / "empty.rs").touch()
    done = subprocess.run(
        ["cargo", "metadata", "--quiet", "--format-version", "1"],
        cwd=folder,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise Skipped(f"cargo cannot download libsqlite3-sys {CRATES[release]}")
    packages = json.loads(done.stdout)["packages"]
    (manifest,) = [p["manifest_path"] for p in packages if p["name"] == "libsqlite3-sys"]
    source = Path(manifest).parent / "sqlite3" / "sqlite3.c"
    unfinished = folder / "unfinished.so"
    subprocess.run(
        [
            *("cc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libsqlite3.so.0"),
            *("-DSQLITE_ENABLE_COLUMN_METADATA", "-DSQLITE_ENABLE_RTREE", "-DSQLITE_ENABLE_FTS5"),
            *(str(source), "-o", str(unfinished), "-lpthread", "-ldl", "-lm"),
        ],
        check=True,
    )
    unfinished.rename(library)
    return folder
