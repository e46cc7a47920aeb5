"""Environments of other releases, and a process to call the release in one of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
# The last three minor releases, and the last one before 1.0.
RELEASES = ("1.6.6", "1.5.1", "1.4.2", "0.25.5")


class ReleaseError(Exception):
    """The error that a release raised for a request."""


def python_of(release: str) -> Path:
    """Return the Python that has a release; install it on the first call."""
    return environment(Path("compat") / release, [f"deltalake=={release}", "pyarrow"])


def environment(name: Path, packages: Sequence[str]) -> Path:
    """Return the Python of an environment below `build/`; install it if the packages differ."""
    folder = BUILD / name
    python = folder / "bin" / "python"
    done = folder / ".installed"
    content = "\n".join(packages)
    if not done.exists() or done.read_text(encoding="utf-8") != content:
        uv = shutil.which("uv") or str(ROOT / ".venv" / "uv" / "bin" / "uv")
        _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), *packages)
        done.write_text(content, encoding="utf-8")
    return python


def _run(*arguments: str) -> None:
    subprocess.run(arguments, check=True)


@dataclass(slots=True)
class Release:
    """A running release of deltalake, or of deltasql; use it as a context manager."""

    python: Path
    module: str = "tests.compat.release"
    _process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [str(self.python), "-m", self.module],
            cwd=ROOT,
            # Without PYTHONPATH, which may name the code of this tree instead of the release.
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"RUST_LOG": "off"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.returncode is None:
            self._process.communicate()

    def kill(self) -> None:
        """Kill the process, so that it cannot clean up."""
        self._process.kill()
        self._process.wait()

    def request(self, do: str, **arguments: Any) -> Any:
        """Send a request to the release and return its response."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps({'do': do, **arguments})}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ReleaseError(f"{self.python} ended while it was asked to {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise ReleaseError(answer["error"])
        return answer["value"]
