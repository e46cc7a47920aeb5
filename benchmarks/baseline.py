"""The baseline release that this tree is compared with, built from its commit.

`make baseline` (`python -m benchmarks.baseline`) checks out the commit into a worktree in the
user's cache folder, builds its wheel there, unpacks it, and removes the worktree. A process with
`PYTHONPATH` set to `site()` imports the baseline with the dependencies of this environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"
COMMIT = "107527057a1afce6d74cb970f577cb986d2c70be"


def folder() -> Path:
    """Return the folder of the baseline: its wheel and the unpacked package."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "deltasql" / f"baseline-{COMMIT[:12]}"


def site() -> Path:
    """Return the folder for PYTHONPATH; build the baseline if it is missing."""
    unpacked = folder() / "site"
    if not unpacked.exists():
        build()
    return unpacked


def build() -> Path:
    """Build the wheel from a worktree of the commit and unpack it; return the wheel."""
    home = folder()
    tree, wheels = home / "tree", home / "wheels"
    home.mkdir(parents=True, exist_ok=True)
    known = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    if subprocess.run(known, cwd=ROOT, stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"commit {COMMIT} is not in this clone: fetch its history (git fetch --unshallow)")
    if not tree.exists():
        _git("worktree", "add", "--detach", "--force", str(tree), COMMIT)
    try:
        subprocess.run(
            [sys.executable, "-m", "maturin", "build", "--release", "--out", str(wheels)],
            cwd=tree,
            env={**os.environ, "CARGO_TARGET_DIR": str(home / "target")},
            check=True,
        )
    finally:
        # Not `git worktree remove`: after a build that was killed, the tree may be one of another
        # clone, of which git here does not know.
        shutil.rmtree(tree)
        _git("worktree", "prune")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home / "site")
    return wheel


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    print(build())
